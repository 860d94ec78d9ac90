// The prompts of a run with their newest answers, or its steps. Searching, filtering and sorting
// are the server's work: a run may have a hundred thousand prompts.

const PAGE = 50;
const SEARCH_MS = 150;
const POLL_MS = 4000;

const digits = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

export default {
  template: `
    <section class="s-column" :aria-busy="loading">
      <div class="s-row">
        <div class="s-row" role="group" aria-label="List by">
          <button class="s-plain" :aria-pressed="by === 'prompt'" @click="show('prompt')">By prompt</button>
          <button class="s-plain" :aria-pressed="by === 'step'" @click="show('step')">By step</button>
        </div>
        <template v-if="by === 'prompt'">
          <input class="s-input s-grow" type="search" data-search placeholder="Search prompts and completions" aria-label="Search prompts" v-model="search" @input="later">
          <select class="s-input" aria-label="Reward component" v-model="component" @change="filter">
            <option value="">total reward</option>
            <option v-for="name in components" :key="name" :value="name">{{ name }}</option>
          </select>
          <input class="s-input" type="number" step="0.1" placeholder="min" aria-label="Min reward" v-model="least" @input="later">
          <input class="s-input" type="number" step="0.1" placeholder="max" aria-label="Max reward" v-model="most" @input="later">
          <select class="s-input" aria-label="Filter by outcome" v-model="only" @change="filter">
            <option value="">all prompts</option>
            <option value="stop_reason=length">truncated (reached max length)</option>
            <option value="stop_reason=context">ran out of context</option>
            <option value="stop_reason=max_turns">reached the turn limit</option>
            <option value="stop_reason=stop">ended with a stop token</option>
            <option value="failed=true">failed</option>
            <option value="failed=false">not failed</option>
          </select>
          <select class="s-input" aria-label="Sort" v-model="sort" @change="filter">
            <option value="line">file order</option>
            <option value="-reward">highest reward first</option>
            <option value="reward">lowest reward first</option>
            <option value="-step">newest first</option>
          </select>
        </template>
      </div>
      <p v-if="fault" class="s-error" role="alert">{{ fault }}</p>
      <div class="s-table-wrap" :class="{ 's-table-wrap--short': short }" :tabindex="rows.length ? null : 0">
        <table class="s-table" data-list>
          <thead v-if="by === 'prompt'"><tr><th>Prompt</th><th>Latest completion</th><th class="s-number">Step</th><th class="s-number">Reward</th></tr></thead>
          <thead v-else><tr><th>Step</th><th class="s-number">Prompts</th><th class="s-number">Samples</th><th class="s-number">Average reward</th><th>Outcome</th></tr></thead>
          <tbody v-if="by === 'prompt'">
            <tr v-for="row in rows" :key="row.id" :class="{ 's-chosen': row.id === chosen }">
              <td class="s-fill"><button class="s-link s-clip" :title="row.preview" data-item @click="$emit('prompt', row.id)">{{ row.preview || '(empty)' }}</button></td>
              <td class="s-fill"><span class="s-clip s-muted" :title="row.answer">{{ row.answer }}</span></td>
              <td class="s-number mono">{{ row.step }}</td>
              <td class="s-number mono"><span v-if="row.failed" class="s-badge s-badge--bad">{{ row.failed }} failed</span> {{ digits(component ? row.components[component] : row.reward) }}</td>
            </tr>
          </tbody>
          <tbody v-else>
            <tr v-for="row in rows" :key="row.id" :class="{ 's-chosen': row.step === step }">
              <td><button class="s-link mono" data-item @click="$emit('step', row.step)">{{ row.step }}</button></td>
              <td class="s-number mono">{{ row.prompts }}</td>
              <td class="s-number mono">{{ row.samples }}</td>
              <td class="s-number mono">{{ digits(row.reward) }}</td>
              <td>{{ status(row) }}</td>
            </tr>
          </tbody>
        </table>
        <p v-if="!rows.length && !loading" class="s-empty">{{ filtered ? 'No rollouts match the filters.' : 'No rollouts yet. They appear when the first step is sampled.' }}</p>
      </div>
      <div class="s-row">
        <span class="s-small s-muted" aria-live="polite">{{ counted }}</span>
        <span class="s-grow"></span>
        <button class="s-plain" v-if="more" @click="load(true)" :disabled="loading">Load more</button>
      </div>
    </section>`,

  props: {
    run: String,
    active: Boolean,
    components: Array,
    initial: Object, // by, search, component, least, most, only, sort
    step: Number,
    chosen: String, // id of the prompt that is shown below
    short: Boolean, // leaves room for what was chosen
  },

  data() {
    return {
      by: "prompt",
      search: "",
      component: "",
      least: "",
      most: "",
      only: "",
      sort: "line",
      rows: [],
      more: false,
      total: null,
      loading: false,
      fault: "",
    };
  },

  created() {
    Object.assign(this, this.initial);
    this.digits = digits;
    this.asked = 0;
    this.load();
    this.timer = setInterval(() => this.follow(), POLL_MS);
  },

  unmounted() {
    clearInterval(this.timer);
    clearTimeout(this.wait);
  },

  computed: {
    filtered() {
      return this.by === "prompt" && (this.search || this.least !== "" || this.most !== "" || this.only);
    },
    counted() {
      if (this.total === null) return "";
      return `${this.rows.length} of ${this.total} ${this.by === "prompt" ? "prompts" : "steps"}`;
    },
  },

  methods: {
    show(by) {
      this.by = by;
      this.filter();
    },

    later() {
      clearTimeout(this.wait);
      this.wait = setTimeout(() => this.filter(), SEARCH_MS);
    },

    filter() {
      const { by, search, component, least, most, only, sort } = this;
      this.$emit("view", { by, search, component, least, most, only, sort });
      this.load();
    },

    // The first page is read again while the run goes on, unless somebody reads further down.
    follow() {
      if (this.active && !document.hidden && this.$el?.offsetParent && this.rows.length <= PAGE) this.load();
    },

    url(after) {
      if (this.by === "step") return `/v1/strop/runs/${this.run}/steps?limit=${PAGE}${after ? `&after=${after}` : ""}`;
      const query = new URLSearchParams({ limit: PAGE, sort: this.sort, count: true });
      if (this.search) query.set("search", this.search);
      if (this.component) query.set("component", this.component);
      if (this.least !== "") query.set("min_reward", this.least);
      if (this.most !== "") query.set("max_reward", this.most);
      if (this.only) query.set(...this.only.split("="));
      if (after) query.set("after", after);
      return `/v1/strop/runs/${this.run}/prompts?${query}`;
    },

    async load(further = false) {
      const ask = ++this.asked;
      this.loading = true;
      try {
        const response = await fetch(this.url(further ? this.rows.at(-1)?.id : null));
        const body = await response.json();
        if (ask !== this.asked) return; // a newer question is under way
        if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
        this.rows = further ? [...this.rows, ...body.data] : body.data;
        this.more = body.has_more;
        this.total = body.total ?? null;
        this.fault = "";
      } catch (error) {
        if (ask === this.asked) this.fault = `Cannot load the list: ${error.message}`;
      } finally {
        if (ask === this.asked) this.loading = false;
      }
    },

    status(row) {
      if (row.damage) return row.damage;
      if (!row.samples) return "no rollouts recorded";
      const parts = [];
      if (row.failed) parts.push(`${row.failed} failed`);
      if (row.truncated) parts.push(`${row.truncated} truncated`);
      return parts.join(", ") || "complete";
    },
  },
};
