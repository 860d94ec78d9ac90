// The end of a log, followed while it grows. Older lines come when they are asked for.

const LINES = 200;
const KEPT = 5000;

export default {
  template: `
    <section class="s-column">
      <div class="s-row">
        <select class="s-input" aria-label="Log" v-model="log" @change="begin">
          <option value="training">training.log</option>
          <option value="output">raw_output.log</option>
        </select>
        <select class="s-input" aria-label="Minimum level" v-model="level" @change="begin">
          <option value="debug">debug and above</option>
          <option value="info">info and above</option>
          <option value="warning">warning and above</option>
          <option value="error">error only</option>
        </select>
        <input class="s-input s-grow" type="search" data-search aria-label="Filter lines" placeholder="Filter lines" v-model="search" @change="begin">
        <label class="s-row s-small"><input type="checkbox" v-model="following"> Follow</label>
      </div>
      <p v-if="fault" class="s-error" role="alert">{{ fault }}</p>
      <div class="s-log" ref="box" tabindex="0" role="log" aria-label="Log" @scroll="scrolled">
        <button v-if="older" class="s-plain" @click="back">Load older lines</button>
        <div v-for="line in lines" :key="line.offset" :class="'s-log-' + line.level">{{ line.text }}</div>
        <p v-if="!lines.length" class="s-muted">No log lines yet.</p>
      </div>
    </section>`,

  props: { run: String },

  data() {
    return { log: "training", level: "debug", search: "", following: true, lines: [], older: false, fault: "" };
  },

  mounted() {
    this.begin();
    this.seen = () => (document.hidden ? this.source?.close() : this.begin());
    document.addEventListener("visibilitychange", this.seen);
  },

  unmounted() {
    document.removeEventListener("visibilitychange", this.seen);
    this.source?.close();
  },

  watch: {
    following() {
      if (this.following) this.down();
    },
  },

  methods: {
    query(more) {
      return new URLSearchParams({ log: this.log, level: this.level, search: this.search, ...more });
    },

    async page(more) {
      const response = await fetch(`/v1/strop/runs/${this.run}/logs?${this.query({ lines: LINES, ...more })}`);
      const body = await response.json();
      if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
      return body;
    },

    async begin() {
      this.source?.close();
      try {
        const page = await this.page({});
        Object.assign(this, { lines: page.data, older: page.has_more, start: page.start, fault: "" });
        this.down();
        this.source = new EventSource(`/v1/strop/runs/${this.run}/logs/stream?${this.query({ after: page.end })}`);
        this.source.addEventListener("lines", (event) => this.add(JSON.parse(event.data).data));
        this.source.addEventListener("reset", () => this.begin());
      } catch (error) {
        this.fault = `Cannot load the log: ${error.message}`;
      }
    },

    add(found) {
      const known = new Map(this.lines.map((line) => [line.offset, line]));
      for (const line of found) known.set(line.offset, line);
      this.lines = [...known.values()].slice(-KEPT);
      if (this.following) this.down();
    },

    async back() {
      try {
        const page = await this.page({ before: this.start });
        this.lines = [...page.data, ...this.lines];
        this.older = page.has_more;
        this.start = page.start;
      } catch (error) {
        this.fault = error.message;
      }
    },

    down() {
      this.$nextTick(() => this.$refs.box && (this.$refs.box.scrollTop = this.$refs.box.scrollHeight));
    },

    scrolled() {
      const box = this.$refs.box;
      this.following = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
    },
  },
};
