// All jobs, and runs that were imported: where they stand, and what can be done with them.
// Reads the API while it can be seen; two to four runs may be chosen to compare.

const POLL_MS = 2000;
const LIMIT = 100;
const MOST_COMPARED = 4;
const TONES = { running: "running", validating_files: "running", starting: "running", succeeded: "good", paused: "warn", interrupted: "warn", failed: "bad" };
const STATES = ["validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"];
const PENDING = { pause: "Pausing…", cancel: "Cancelling…" };
const ACTIONS = {
  pause: ["queued", "running"],
  resume: ["paused", "failed"],
  cancel: ["validating_files", "queued", "running", "paused"],
  delete: ["succeeded", "failed", "cancelled"],
};
const ORDERS = {
  newest: (a, b) => b.created_at - a.created_at,
  name: (a, b) => a.name.localeCompare(b.name),
  reward: (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity),
  status: (a, b) => a.status.localeCompare(b.status) || b.created_at - a.created_at,
};

function left(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

// A curve without axes: the shape of a run at a glance.
const Sparkline = {
  template: `
    <svg v-if="path" class="s-sparkline" viewBox="0 0 96 24" preserveAspectRatio="none" role="img" :aria-label="label">
      <path :d="path" fill="none" stroke="var(--accent)" stroke-width="1.5" vector-effect="non-scaling-stroke"></path>
    </svg>
    <span v-else class="s-muted">–</span>`,
  props: { values: Array, label: String },
  computed: {
    path() {
      if (!this.values || this.values.length < 2) return "";
      const [low, high] = [Math.min(...this.values), Math.max(...this.values)];
      const x = (index) => (1 + (94 * index) / (this.values.length - 1)).toFixed(1);
      const y = (value) => (22 - (20 * (value - low)) / (high - low || 1)).toFixed(1);
      return this.values.map((value, index) => `${index ? "L" : "M"}${x(index)},${y(value)}`).join("");
    },
  },
};

export default {
  components: { Sparkline },

  template: `
    <section class="s-column" :aria-busy="!loaded">
      <div class="s-row" v-if="loaded && jobs.length">
        <input class="s-input s-grow" type="search" data-search placeholder="Search name, model or id" aria-label="Search jobs" v-model="search" @input="viewed">
        <select class="s-input" aria-label="Status" v-model="status" @change="viewed">
          <option value="">All statuses</option>
          <option v-for="state in states" :key="state" :value="state">{{ words(state) }}</option>
        </select>
        <select class="s-input" aria-label="Sort" v-model="sort" @change="viewed">
          <option v-for="(order, name) in orders" :key="name" :value="name">Sort by {{ name }}</option>
        </select>
        <button class="s-plain" :disabled="chosen.length < 2" @click="$emit('compare', chosen)">Compare{{ chosen.length ? ' ' + chosen.length : '' }}</button>
      </div>
      <p v-if="fault" class="s-error" role="alert">{{ fault }}</p>
      <p v-if="!loaded && !fault" class="s-muted">Loading…</p>
      <slot v-if="loaded && !jobs.length"></slot>
      <div v-if="jobs.length" class="s-table-wrap">
        <table class="s-table" data-list>
          <thead><tr><th><span class="s-sr">Compare</span></th><th>Name</th><th>Model</th><th>Status</th><th>Progress</th><th>Reward</th><th class="s-number">Last</th><th>Created</th><th><span class="s-sr">Actions</span></th></tr></thead>
          <tbody>
            <tr v-for="job in shown" :key="job.id">
              <td><input type="checkbox" :aria-label="'Compare ' + job.name" :checked="chosen.includes(job.run_id)" :disabled="!job.run_id || (chosen.length >= most && !chosen.includes(job.run_id))" @change="choose(job)"></td>
              <td><a :href="job.href" data-item class="s-clip">{{ job.name }}</a></td>
              <td><span class="s-clip s-muted">{{ job.model }}</span></td>
              <td><span class="s-badge" :class="tone(job.status)" :title="job.reason || ''">{{ words(pending[job.wanted] ?? job.status) }}</span>
                <span v-if="job.queue_position" class="s-small s-muted"> {{ job.queue_position === 1 ? 'next' : 'number ' + job.queue_position }}</span></td>
              <td><div v-if="job.total" class="s-column s-tight">
                  <div class="s-progress" role="progressbar" :aria-valuenow="job.step" aria-valuemin="0" :aria-valuemax="job.total" :aria-label="'Progress of ' + job.name"><div :style="{ width: (100 * job.step) / job.total + '%' }"></div></div>
                  <span class="s-small s-muted mono">{{ job.step }} / {{ job.total }} {{ left(job.seconds_left) }}</span></div></td>
              <td><sparkline :values="job.curve" :label="'Reward of ' + job.name"></sparkline></td>
              <td class="s-number mono">{{ job.reward === null ? '–' : job.reward.toFixed(3) }}</td>
              <td><time class="s-muted" :data-since="job.created_at"></time></td>
              <td><div class="s-row s-actions">
                <button v-for="name in actions(job)" :key="name" class="s-chart-tool" :aria-label="name + ' ' + job.name" :disabled="busy === job.id" @click="act(name, job)">{{ name }}</button>
              </div></td>
            </tr>
          </tbody>
        </table>
        <p v-if="!shown.length" class="s-empty">No jobs match your search.</p>
      </div>
      <dialog ref="sure" class="s-sure" aria-labelledby="sure-title">
        <template v-if="asked">
          <h2 id="sure-title">{{ asked.name === 'delete' ? 'Delete' : 'Cancel' }} {{ asked.job.name }}?</h2>
          <p v-if="asked.name === 'delete'">{{ asked.job.own ? 'The run folder with its rollouts, metrics and checkpoints is deleted too. This cannot be undone.' : 'The run is removed from this list. Its folder is kept.' }}</p>
          <p v-else>Training stops and cannot be resumed. Pause the job instead if you want to resume it later.</p>
          <div class="s-row"><button class="s-plain" @click="$refs.sure.close()">Back</button><button class="s-plain s-plain--danger" @click="sure">{{ asked.name === 'delete' ? 'Delete' : 'Cancel job' }}</button></div>
        </template>
      </dialog>
    </section>`,

  props: { initial: Object },

  data() {
    return { jobs: [], loaded: false, fault: "", search: "", status: "", sort: "newest", chosen: [], busy: "", asked: null };
  },

  created() {
    Object.assign(this, this.initial, { left, pending: PENDING, states: STATES, orders: ORDERS, most: MOST_COMPARED });
    this.load();
    this.timer = setInterval(() => document.hidden || this.load(), POLL_MS);
  },

  unmounted() {
    clearInterval(this.timer);
  },

  computed: {
    shown() {
      const wanted = this.search.toLowerCase();
      return this.jobs
        .filter((job) => !this.status || job.status === this.status)
        .filter((job) => [job.name, job.model, job.id].some((text) => text.toLowerCase().includes(wanted)))
        .sort(ORDERS[this.sort]);
    },
  },

  methods: {
    words: (state) => state.replaceAll("_", " "),
    tone: (state) => (TONES[state] ? `s-badge--${TONES[state]}` : ""),

    async get(path) {
      this.tags ??= {};
      const known = this.tags[path];
      const response = await fetch(path, { headers: known ? { "If-None-Match": known.etag } : {} });
      if (response.status === 304) return known.body;
      const body = await response.json();
      if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
      const etag = response.headers.get("etag");
      if (etag) this.tags[path] = { etag, body };
      return body;
    },

    async load() {
      try {
        const [jobs, runs] = await Promise.all([
          this.get(`/v1/strop/jobs?limit=${LIMIT}`),
          this.get(`/v1/strop/runs?limit=${LIMIT}`),
        ]);
        this.jobs = this.joined(jobs.data, runs.data);
        this.loaded = true;
        this.fault = "";
      } catch (error) {
        this.fault = `Cannot load the jobs: ${error.message}. Retrying.`;
      }
    },

    joined(jobs, runs) {
      const byId = new Map(runs.map((run) => [run.id, run]));
      const own = jobs.map((job) => this.row(job, byId.get(job.run_id), true));
      const imported = runs.filter((run) => !run.job_id).map((run) => this.row({ ...run, status: run.state, run_id: run.id }, run, false));
      return [...own, ...imported];
    },

    row(job, run, own) {
      const curve = (run?.sparkline ?? []).filter((value) => value !== null);
      return {
        ...job,
        own,
        curve,
        href: `/experiments/${own ? job.id : run.id}`,
        reward: run?.reward ?? null,
        step: job.progress?.step ?? run?.step ?? 0,
        total: job.progress?.total_steps ?? run?.total_steps ?? null,
        seconds_left: job.status === "running" ? (job.progress?.seconds_left ?? run?.seconds_left ?? null) : null,
      };
    },

    actions(job) {
      if (!job.own) return ["delete"];
      const possible = Object.keys(ACTIONS).filter((name) => ACTIONS[name].includes(job.status) && job.wanted !== name);
      return [...possible, "clone"];
    },

    choose(job) {
      this.chosen = this.chosen.includes(job.run_id)
        ? this.chosen.filter((id) => id !== job.run_id)
        : [...this.chosen, job.run_id];
    },

    viewed() {
      this.$emit("view", { search: this.search, status: this.status, sort: this.sort });
    },

    act(name, job) {
      if (name === "clone") return this.$emit("clone", job.id);
      if (name !== "cancel" && name !== "delete") return this.send(name, job);
      this.asked = { name, job };
      this.$nextTick(() => this.$refs.sure.showModal());
    },

    sure() {
      this.$refs.sure.close();
      this.send(this.asked.name, this.asked.job);
    },

    async send(name, job) {
      this.busy = job.id;
      const kind = job.own ? "jobs" : "runs";
      const [method, path] =
        name === "delete" ? ["DELETE", `/v1/strop/${kind}/${job.id}`] : ["POST", `/v1/fine_tuning/jobs/${job.id}/${name}`];
      try {
        const response = await fetch(path, { method });
        if (!response.ok) throw new Error((await response.json()).error?.message ?? response.statusText);
        await this.load();
      } catch (error) {
        this.fault = `${job.name}: ${error.message}`;
      } finally {
        this.busy = "";
      }
    },
  },
};
