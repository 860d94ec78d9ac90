// A curve without axes, for tables: the shape of a run at a glance.

export default {
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
