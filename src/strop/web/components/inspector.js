// One rollout, of training, an evaluation or a test of rewards: what it was worth and why, the
// conversation, its tokens, its logs, and its group. Model text is only ever put on the page as text.

import { Conversation, answered, call, stopped } from "/ui/static/conversation.js";
import { choose, read, whenChosen } from "/ui/static/rollouts.js";
import { Segments } from "/ui/static/segments.js";

const digits = (value) => (value === null || value === undefined ? "–" : Number(value.toFixed(3)).toString());

const VIEWS = ["Conversation", "Tokens", "Group", "Logs", "JSON"];

export default {
  components: { Conversation, Segments },

  template: `
    <p v-if="!current" class="s-empty">Select an attempt: click it, or move with the arrow keys and press Enter.</p>
    <article class="s-inspector" v-else-if="rollout" :aria-label="title">
      <header class="s-row">
        <h2 class="s-grow">{{ title }}</h2>
        <span v-if="rollout.stop_reason !== 'stop'" class="s-badge s-badge--warn">{{ stopped(rollout.stop_reason) }}</span>
        <span v-if="rollout.failure" class="s-badge s-badge--bad">{{ rollout.failure.cause }}</span>
        <a v-if="playable" :href="'/playground?rollout=' + rollout.id">Open in the playground</a>
        <button class="s-chart-tool" @click="copy">{{ copied ? 'Copied' : 'Copy as JSON' }}</button>
      </header>

      <p v-if="rollout.failure" class="s-error">{{ rollout.failure.message }}<template v-if="rollout.failure.detail">
{{ rollout.failure.detail }}</template></p>

      <section v-if="parts.length" aria-label="Reward">
        <p class="s-sum mono">
          <template v-for="(part, index) in parts" :key="part.name">
            <span v-if="index"> + </span><span>{{ part.weight === 1 ? '' : digits(part.weight) + ' × ' }}{{ digits(part.value) }} ({{ part.name }})</span>
          </template>
          <span> = <strong>{{ digits(rollout.reward) }}</strong></span>
        </p>
        <div class="s-sum-bar" aria-hidden="true">
          <div v-for="part in parts" :key="part.name" :class="{ 's-sum-minus': part.share < 0 }" :style="{ flexGrow: Math.abs(part.share) }" :title="part.name"></div>
        </div>
        <p v-if="logged.length" class="s-small s-muted">logged only (weight 0): <span class="mono">{{ logged.map((part) => part.name + ' ' + digits(part.value)).join(', ') }}</span></p>
      </section>

      <dl class="s-facts">
        <template v-if="rollout.advantage !== undefined"><dt>Advantage</dt><dd class="mono">{{ digits(rollout.advantage) }}</dd></template>
        <dt>Length</dt><dd class="mono">{{ length }}</dd>
        <dt>Entropy</dt><dd class="mono">{{ digits(rollout.entropy) }}</dd>
        <dt>Time</dt><dd class="mono">{{ times }}</dd>
      </dl>

      <div class="s-row" role="group" aria-label="View">
        <button v-for="name in views" :key="name" class="s-plain" :aria-pressed="view === name" @click="view = name">{{ name }}</button>
        <span class="s-grow"></span>
        <span v-if="view === 'Conversation'" class="s-row" role="group" aria-label="Text format">
          <button class="s-chart-tool" :aria-pressed="!rendered" @click="render(false)">Raw</button>
          <button class="s-chart-tool" :aria-pressed="rendered" @click="render(true)">Rendered</button>
        </span>
      </div>

      <conversation v-if="view === 'Conversation'" :rollout="rollout" :rendered="rendered"></conversation>
      <segments v-else-if="view === 'Tokens'" :segments="rollout.segments ?? []"></segments>

      <section v-else-if="view === 'Group'" class="s-group" aria-label="Group">
        <button v-for="other in group" :key="other.sample" class="s-card s-group-item" :aria-current="other.sample === rollout.sample" @click="pick(other)">
          <span class="s-row s-small"><strong>attempt {{ other.sample + 1 }}</strong><span class="s-grow"></span><span class="mono">{{ other.failure?.cause || digits(other.reward) }}</span></span>
          <span v-for="(message, index) in answered(other)" :key="index" class="s-turn" :class="'s-turn--' + message.role">
            <span class="s-small s-muted">{{ message.note || message.role }}</span>
            <span v-if="message.content" class="s-group-text">{{ message.content }}</span>
            <span v-for="asked in message.tool_calls || []" :key="asked.id" class="s-call s-group-text">{{ call(asked) }}</span>
          </span>
        </button>
      </section>

      <section v-else-if="view === 'Logs'"><pre>{{ rollout.logs || 'No logs.' }}</pre></section>
      <section v-else><pre>{{ raw }}</pre></section>
    </article>
    <p v-else-if="fault" class="s-error" role="alert">{{ fault }}</p>
    <p v-else class="s-muted" aria-busy="true">Loading…</p>`,

  props: {
    base: String, // where rollouts are read: at base/id one as a whole, at base/id/group all of its group
    id: String, // of the rollout; empty while none is chosen
    follows: Boolean, // shows what is chosen elsewhere on the page
    initial: Object, // show: the view; text: "rendered"
  },

  data() {
    return { current: this.id, rollout: null, group: [], fault: "", view: VIEWS[0], rendered: false, copied: false };
  },

  created() {
    this.views = VIEWS;
    Object.assign(this, { answered, call, digits, stopped });
    this.view = VIEWS.find((name) => name.toLowerCase() === this.initial?.show) ?? VIEWS[0];
    this.rendered = this.initial?.text === "rendered";
    if (this.follows) this.forget = whenChosen((id) => (this.current = id));
    this.load();
  },

  unmounted() {
    this.forget?.();
  },

  watch: {
    id() {
      this.current = this.id;
    },
    current() {
      this.load();
    },
    view() {
      if (this.view === "Group") this.loadGroup();
      this.tell();
    },
  },

  computed: {
    title() {
      const { step, line, sample } = this.rollout;
      return `${step === undefined ? `Line ${line}` : `Step ${step}`}, attempt ${sample + 1}`;
    },
    parts() {
      return this.components().filter((part) => part.weight);
    },
    logged() {
      return this.components().filter((part) => !part.weight);
    },
    length() {
      const { length, segments, turns } = this.rollout;
      const parts = [`${length} tokens`];
      if (turns.length > 1) parts.push(`in ${turns.length} turns`);
      if (segments?.length) parts.push(`after a prompt of ${segments[0].prompt_tokens}`);
      return parts.join(" ");
    },
    times() {
      return Object.entries(this.rollout.timing).map(([name, seconds]) => `${name} ${digits(seconds)} s`).join(" · ");
    },
    raw() {
      return JSON.stringify(this.rollout, null, 2);
    },
    playable() {
      return this.rollout.run_id && this.rollout.prompt.length > 0;
    },
  },

  methods: {
    components() {
      const { components, weights } = this.rollout;
      return Object.entries(components).map(([name, value]) => {
        const weight = weights[name] ?? 1;
        return { name, value, weight, share: weight * value };
      });
    },

    pick(other) {
      const id = other.id ?? String(other.sample);
      this.current = id;
      if (this.follows) choose(id);
      this.$emit("open", id);
    },

    render(rendered) {
      this.rendered = rendered;
      this.tell();
    },

    tell() {
      this.$emit("view", {
        show: this.view === VIEWS[0] ? "" : this.view.toLowerCase(),
        text: this.rendered ? "rendered" : "",
      });
    },

    async load() {
      if (!this.current) {
        Object.assign(this, { rollout: null, fault: "" });
        return;
      }
      const wanted = this.current;
      try {
        const rollout = await read(`${this.base}/${wanted}`);
        if (wanted !== this.current) return; // another one was chosen meanwhile
        Object.assign(this, { rollout, fault: "", copied: false });
        if (this.view === "Group") this.loadGroup();
      } catch (error) {
        Object.assign(this, { rollout: null, fault: `Cannot load this attempt: ${error.message}` });
      }
    },

    async loadGroup() {
      try {
        this.group = (await read(`${this.base}/${this.current}/group`)).data;
      } catch (error) {
        this.fault = error.message;
      }
    },

    async copy() {
      await navigator.clipboard.writeText(this.raw);
      this.copied = true;
    },
  },
};
