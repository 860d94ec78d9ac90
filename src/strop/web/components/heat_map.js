// All attempts at one prompt: a column a step, a row an attempt, bolder green for more reward.
// A slash marks a failed attempt, a foot one that was cut off. Mouse, or arrow keys, Enter and Esc.

import { choose, rollout, whenChosen } from "/ui/static/rollouts.js";

const LARGEST = 18;
const SMALLEST = 4;
const WIDEST = 12000; // a canvas that is much wider than that stays empty
const GAP = 2;
const LEFT = 2;
const TOP = 20;

const token = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

export default {
  template: `
    <div class="s-heat">
      <p v-if="fault" class="s-error" role="alert">{{ fault }}</p>
      <div class="s-heat-scroll" ref="scroll">
        <p v-if="loaded && !attempts" class="s-empty">No attempts at this prompt were recorded.</p>
        <div class="s-heat-field">
        <ol class="s-heat-rows" aria-hidden="true"><li v-for="attempt in attempts" :key="attempt" :style="{ height: size + 2 + 'px' }">{{ size > 9 || attempt % 5 === 1 ? attempt : '' }}</li></ol>
        <canvas ref="canvas" tabindex="0" role="application" :aria-label="summary" :aria-describedby="keys"
          @mousemove="hover" @mouseleave="hovered = null; draw()" @click="click" @keydown="key" @focus="focused" @blur="draw"></canvas>
        </div>
      </div>
      <p class="s-row s-small s-muted">
        <span class="mono" aria-live="polite">{{ told }}</span>
        <span :id="keys" class="s-sr">Arrow keys move, Enter opens the attempt, Esc closes it.</span>
        <span class="s-grow"></span>
        <span>{{ low }}</span><span class="s-heat-scale" aria-hidden="true"></span><span>{{ high }}</span>
        <span><span class="s-heat-key" aria-hidden="true">╱</span> failed</span>
        <span><span class="s-heat-key" aria-hidden="true">▁</span> truncated</span>
      </p>
    </div>`,

  props: {
    run: String,
    row: String, // id of the prompt
    selected: String, // id of the rollout that is shown to begin with
    active: Boolean,
    grab: Boolean, // take the keyboard: somebody just opened it
  },

  data() {
    return { told: "", fault: "", low: "", high: "", summary: "Attempts", attempts: 0, size: LARGEST, loaded: false };
  },

  created() {
    this.keys = `heat-keys-${Math.random()}`;
    this.cells = new Map(); // "column,attempt" -> cell
    this.steps = [];
    this.at = null;
    this.hovered = null;
  },

  mounted() {
    this.theme = new MutationObserver(() => this.draw());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.opened = this.selected; // id of the rollout that is shown, if any
    this.forget = whenChosen((id) => {
      this.opened = id;
      this.find(id);
      this.draw();
    });
    this.load(true);
    this.timer = setInterval(() => this.active && !document.hidden && this.$el.offsetParent && this.load(), 3000);
  },

  unmounted() {
    clearInterval(this.timer);
    clearTimeout(this.resting);
    this.forget();
    this.theme.disconnect();
  },

  watch: {
    row() {
      this.at = null;
      this.load(true);
    },
  },

  methods: {
    async load(first = false) {
      const url = `/v1/strop/runs/${this.run}/prompts/${encodeURIComponent(this.row)}/heatmap`;
      try {
        const response = await fetch(url, { headers: !first && this.etag ? { "If-None-Match": this.etag } : {} });
        if (response.status === 304) return;
        const body = await response.json();
        if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
        this.etag = response.headers.get("etag");
        this.fault = "";
        this.take(body);
        if (first) this.find(this.selected);
        this.$nextTick(() => {
          this.draw();
          if (!first) return;
          this.$refs.scroll.scrollLeft = this.at ? this.x(this.at[0]) - 200 : 1e6;
          if (this.grab) this.$refs.canvas.focus({ preventScroll: true });
        });
      } catch (error) {
        this.fault = `Cannot load the attempts: ${error.message}. Retrying.`;
      }
    },

    take({ steps, samples, lowest, highest, cells }) {
      this.loaded = true;
      this.steps = steps;
      this.size = Math.min(LARGEST, Math.max(SMALLEST, Math.floor(WIDEST / Math.max(steps.length, 1)) - GAP));
      this.attempts = samples;
      const column = new Map(this.steps.map((step, index) => [step, index]));
      this.cells = new Map(cells.map((cell) => [`${column.get(cell.step)},${cell.sample}`, cell]));
      this.least = Math.min(0, lowest ?? 0);
      this.most = Math.max(highest ?? 0, this.least + 1e-9);
      this.low = lowest === null ? "" : this.least.toFixed(2);
      this.high = lowest === null ? "" : this.most.toFixed(2);
      this.summary = `${this.attempts} attempts per step, ${this.steps.length} steps`;
    },

    find(id) {
      if (!id) return;
      for (const [key, cell] of this.cells) if (cell.id === id) this.at = key.split(",").map(Number);
      if (this.at) this.tell(this.cell(this.at));
    },

    x(column) {
      return LEFT + column * (this.size + GAP);
    },

    y(attempt) {
      return TOP + attempt * (this.size + GAP);
    },

    cell(at) {
      return at && this.cells.get(at.join(","));
    },

    draw() {
      const canvas = this.$refs.canvas;
      if (!canvas) return;
      const width = this.x(this.steps.length) + GAP;
      const height = this.y(this.attempts) + GAP;
      const ratio = window.devicePixelRatio || 1;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = `11px ${token("--font")}`;
      pen.fillStyle = token("--muted");
      this.labels(pen);
      const colours = { reward: token("--reward"), line: token("--line"), bad: token("--bad"), bar: token("--warn") };
      for (const [key, cell] of this.cells) this.paint(pen, key.split(",").map(Number), cell, colours);
      if (this.hovered) this.frame(pen, this.hovered, token("--line-strong"), 1);
      if (this.at) this.frame(pen, this.at, token("--accent"), 2);
    },

    labels(pen) {
      const room = 10 + 7 * String(this.steps.at(-1) ?? "").length;
      const every = Math.max(1, Math.ceil(room / (this.size + GAP)));
      this.steps.forEach((step, column) => column % every === 0 && pen.fillText(step, this.x(column), TOP - 7));
    },

    paint(pen, [column, attempt], cell, colours) {
      const { size } = this;
      const [x, y] = [this.x(column), this.y(attempt)];
      const share = cell.reward === null ? 0 : (cell.reward - this.least) / (this.most - this.least);
      pen.fillStyle = `rgba(${colours.reward}, ${0.06 + 0.94 * share})`;
      pen.fillRect(x, y, size, size);
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      if (cell.cause) {
        pen.strokeStyle = colours.bad;
        pen.lineWidth = 2;
        pen.beginPath();
        pen.moveTo(x + 3, y + size - 3);
        pen.lineTo(x + size - 3, y + 3);
        pen.stroke();
      }
      if (cell.stop_reason === "length") {
        pen.fillStyle = colours.bar;
        pen.fillRect(x + 2, y + size - 4, size - 4, 2);
      }
    },

    frame(pen, [column, attempt], colour, width) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.strokeRect(this.x(column) - 1, this.y(attempt) - 1, this.size + 2, this.size + 2);
    },

    tell(cell) {
      if (!cell) return;
      const what = cell.cause ? `failed: ${cell.cause}` : `reward ${cell.reward.toFixed(3)}`;
      this.told = `step ${cell.step}, attempt ${cell.sample + 1}: ${what}${cell.stop_reason === "length" ? ", truncated" : ""}`;
    },

    under(event) {
      const at = [
        Math.floor((event.offsetX - LEFT) / (this.size + GAP)),
        Math.floor((event.offsetY - TOP) / (this.size + GAP)),
      ];
      return this.cell(at) ? at : null;
    },

    hover(event) {
      const at = this.under(event);
      if (String(at) === String(this.hovered)) return;
      this.hovered = at;
      if (at) this.ahead(this.cell(at).id);
      this.tell(this.cell(at ?? this.at));
      this.draw();
    },

    // Somebody rests here: read it before it is asked for.
    ahead(id) {
      clearTimeout(this.resting);
      this.resting = setTimeout(() => rollout(id).catch(() => {}), 40);
    },

    click(event) {
      const at = this.under(event);
      if (at) this.open(at);
    },

    focused() {
      if (!this.at && this.steps.length) this.at = [this.steps.length - 1, 0];
      this.tell(this.cell(this.at));
      this.draw();
    },

    key(event) {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === "Enter" && this.at) this.open(this.at);
      if (event.key === "Escape") this.opened ? this.show("") : this.$emit("close");
      const move = moves[event.key];
      if (!move || !this.at) return;
      event.preventDefault();
      const next = [this.at[0] + move[0], this.at[1] + move[1]];
      if (!this.cell(next)) return;
      this.at = next;
      const scroll = this.$refs.scroll;
      const x = this.x(next[0]);
      const wide = scroll.clientWidth - 40 - this.size; // without the numbers of the attempts
      if (x < scroll.scrollLeft || x > scroll.scrollLeft + wide) scroll.scrollLeft = x - 200;
      if (!this.opened) {
        this.tell(this.cell(next));
        this.draw();
        return;
      }
      this.show(this.cell(next).id);
      const further = this.cell([next[0] + move[0], next[1] + move[1]]);
      if (further) this.ahead(further.id); // who goes one step may well go another
    },

    show(id) {
      choose(id);
      this.$emit("select", id);
    },

    open(at) {
      this.at = at;
      this.show(this.cell(at).id);
    },
  },
};
