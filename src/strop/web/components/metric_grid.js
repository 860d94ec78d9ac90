// Charts of a run's metrics, or of a few runs over each other. Reads the API by itself, while it
// can be seen; the server smooths first and thins out afterwards, so no peak is lost unseen.

let echarts; // a megabyte: the page is painted before it is asked for

const POINTS = 640; // more than a chart is wide; each keeps the extremes of its steps
const POLL_MS = 2000;
const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"];

const token = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

function digits(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 1e-12) return "0"; // what rounding leaves of a sum that is nothing
  if ((size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 100 ? 5 : 4)));
}

// Bounds of an axis that shows a curve as flat where it is: rounding errors are no movement.
const flat = ({ min, max }) => max - min <= 1e-6 * Math.max(Math.abs(min), Math.abs(max)) || max - min < 1e-12;
const beside = (value, side) => (Math.abs(value) < 1e-12 ? side : value + side * Math.abs(value) * 0.1);

export default {
  template: `
    <div class="s-charts">
      <div class="s-row s-charts-controls">
        <label class="s-row">Smoothing
          <input type="range" min="0" max="0.99" step="0.01" v-model.number="smoothing" @input="later">
          <span class="mono">{{ smoothing.toFixed(2) }}</span>
        </label>
        <label class="s-row">Steps
          <input type="number" min="0" class="s-input" placeholder="first" aria-label="First step" v-model="first" @input="later">
          <span aria-hidden="true">–</span>
          <input type="number" min="0" class="s-input" placeholder="last" aria-label="Last step" v-model="last" @input="later">
        </label>
        <label class="s-row">Scale
          <select class="s-input" v-model="scale" @change="drawAll">
            <option value="linear">linear</option>
            <option value="log">log</option>
          </select>
        </label>
        <slot></slot>
      </div>
      <p v-if="fault" class="s-error" role="alert">{{ fault }}</p>
      <details v-for="group in groups" :key="group.title" class="s-chart-group" :open="group.open" @toggle="toggled(group, $event)">
        <summary><h2>{{ group.title }}</h2></summary>
        <div class="s-grid s-chart-grid">
          <figure v-for="chart in group.charts" :key="chart.metric" class="s-card s-chart">
            <figcaption class="s-row">
              <h3 class="s-grow" :title="chart.title">{{ chart.title }}</h3>
              <span class="mono">{{ latest(chart) }}</span>
              <button class="s-chart-tool" :aria-label="'Download ' + chart.title + ' as PNG'" @click="png(chart)">PNG</button>
              <button class="s-chart-tool" :aria-label="'Download ' + chart.title + ' as CSV'" @click="csv(chart)">CSV</button>
            </figcaption>
            <p v-if="empty(chart)" class="s-small s-muted s-chart-empty">No values yet.</p>
            <div :ref="(element) => hold(chart, element)" class="s-chart-canvas" role="img" :aria-label="described(chart)"></div>
            <p v-if="chart.hint" class="s-small s-muted">{{ chart.hint }}</p>
          </figure>
        </div>
      </details>
    </div>`,

  props: {
    runs: Array, // {id, name}: the first one is the one that is looked at
    groups: Array, // {title, open, charts: [{title, metric, validation, hint}]}
    active: Boolean, // whether new steps may come
    initial: Object, // smoothing, first, last, scale: from the address
  },

  data() {
    return { smoothing: 0, first: "", last: "", scale: "linear", fault: "", version: 0 };
  },

  created() {
    Object.assign(this, { smoothing: 0.6, ...this.initial });
    this.charts = new Map(); // metric -> {chart, element, view}
    this.series = new Map(); // run id -> {etag, data}
    this.closed = new Set(this.groups.filter((group) => !group.open).map((group) => group.title));
    this.crosshair = `grid-${Math.random()}`;
  },

  mounted() {
    this.sizes = new ResizeObserver((entries) => entries.forEach((entry) => this.resize(entry.target)));
    this.theme = new MutationObserver(() => this.drawAll());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.load();
    this.timer = setInterval(() => this.active && !document.hidden && this.visible() && this.load(), POLL_MS);
  },

  unmounted() {
    clearInterval(this.timer);
    clearTimeout(this.wait);
    this.theme.disconnect();
    this.sizes.disconnect();
    for (const { view } of this.charts.values()) view?.dispose();
  },

  watch: {
    groups() {
      this.$nextTick(() => this.load(true));
    },
    runs() {
      this.series.clear();
      this.load(true);
    },
  },

  methods: {
    visible() {
      return this.$el.offsetParent !== null;
    },

    hold(chart, element) {
      if (element) this.charts.set(chart.metric, { ...this.charts.get(chart.metric), chart, element });
    },

    toggled(group, event) {
      if (event.target.open !== this.closed.has(group.title)) return; // it only came into being
      event.target.open ? this.closed.delete(group.title) : this.closed.add(group.title);
      if (event.target.open) this.load(true);
    },

    open() {
      return this.groups.filter((group) => !this.closed.has(group.title)).flatMap((group) => group.charts);
    },

    names() {
      return this.open().flatMap((chart) => (chart.validation ? [chart.metric, chart.validation] : [chart.metric]));
    },

    later() {
      clearTimeout(this.wait);
      this.wait = setTimeout(() => {
        this.$emit("view", { smoothing: this.smoothing, first: this.first, last: this.last, scale: this.scale });
        this.load(true);
      }, 120);
    },

    async load(force = false) {
      const query = new URLSearchParams({ points: POINTS, smoothing: this.smoothing });
      for (const name of this.names()) query.append("name", name);
      if (this.first !== "") query.set("first", this.first);
      if (this.last !== "") query.set("last", this.last);
      try {
        const [library, ...changed] = await Promise.all([
          import("nicegui-echart"),
          ...this.runs.map((run) => this.fetch(run, query)),
        ]);
        echarts = library.echarts;
        this.fault = "";
        if (force || changed.some(Boolean)) this.drawTimed();
      } catch (error) {
        this.fault = `Cannot load the metrics: ${error.message}. Retrying.`;
      }
    },

    async fetch(run, query) {
      const url = `/v1/strop/runs/${run.id}/metrics?${query}`;
      const known = this.series.get(run.id);
      const headers = known && known.url === url ? { "If-None-Match": known.etag } : {};
      const response = await fetch(url, { headers });
      if (response.status === 304) return false;
      const body = await response.json();
      if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
      this.series.set(run.id, { url, etag: response.headers.get("etag"), data: body.data });
      this.version += 1;
      return true;
    },

    // How long it took stands among the browser's measurements, for bench/ui.py and whoever wonders.
    drawTimed() {
      const start = performance.now();
      this.drawAll();
      for (const { view } of this.charts.values()) view?.getZr().flush();
      performance.clearMeasures("strop-charts");
      performance.measure("strop-charts", { start });
    },

    drawAll() {
      for (const chart of this.open()) this.draw(chart);
    },

    draw(chart) {
      const held = this.charts.get(chart.metric);
      if (!echarts || !held?.element || held.element.offsetParent === null) return;
      if (!held.view) {
        held.view = echarts.init(held.element, null, { renderer: "canvas" });
        held.view.group = this.crosshair;
        echarts.connect(this.crosshair);
        held.view.getZr().on("click", (event) => this.pick(held.view, event));
        this.sizes.observe(held.element);
      }
      held.view.setOption(this.option(chart), { notMerge: true });
    },

    resize(element) {
      for (const { element: other, view } of this.charts.values()) if (other === element) view?.resize();
    },

    lines(chart) {
      const wanted = [[chart.metric, "solid"]];
      if (chart.validation) wanted.push([chart.validation, "dashed"]);
      return this.runs.flatMap((run, index) =>
        wanted.map(([metric, type], order) => ({
          run,
          metric,
          type,
          name: this.label(run, metric),
          colour: token(COLOURS[(this.runs.length > 1 ? index : order) % COLOURS.length]),
          points: this.series.get(run.id)?.data[metric],
        })),
      );
    },

    label(run, metric) {
      const kind = metric.startsWith("validation/") ? "validation" : "training";
      return this.runs.length > 1 ? `${run.name} · ${kind}` : kind;
    },

    option(chart) {
      const lines = this.lines(chart).filter((line) => line.points?.steps.length);
      const pair = (steps, values) => steps.map((step, index) => [step, values[index]]);
      const series = lines.flatMap(({ name, colour, type, points }) => {
        // Measured every now and then, over all of its rows: smoothing would only delay what it says.
        const rare = type === "dashed";
        const few = points.steps.length === 1 || (rare && points.steps.length <= 60);
        const shared = { type: "line", showSymbol: few, symbol: "circle", symbolSize: 5, animation: false };
        const smoothed = this.smoothing > 0 && !rare && points.smoothed;
        const main = {
          ...shared,
          name,
          data: pair(points.steps, smoothed ? points.smoothed : points.values),
          lineStyle: { color: colour, width: 1.7, type },
          itemStyle: { color: colour },
        };
        if (!smoothed) return [main];
        const raw = { data: pair(points.steps, points.values), lineStyle: { color: colour, width: 1, opacity: 0.28 } };
        return [{ ...shared, ...raw, name: `${name}, raw`, itemStyle: { color: colour }, silent: true }, main];
      });
      const font = { fontFamily: token("--font"), fontSize: 11 };
      const axis = { axisLine: { lineStyle: { color: token("--line-strong") } }, axisLabel: { color: token("--muted"), ...font, hideOverlap: true } };
      const legend = this.runs.length > 1 || Boolean(chart.validation); // its room is kept from the beginning: nothing jumps
      return {
        animation: false,
        textStyle: font,
        grid: { left: 52, right: 14, top: 10, bottom: legend ? 46 : 26 },
        legend: {
          show: lines.length > 1,
          type: "scroll",
          bottom: 0,
          itemWidth: 18,
          itemHeight: 6,
          textStyle: { color: token("--muted"), ...font },
          data: lines.map((line) => line.name),
        },
        xAxis: { type: "value", min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false }, ...axis },
        yAxis: {
          type: this.scale === "log" ? "log" : "value",
          scale: true,
          min: (range) => (this.scale !== "log" && flat(range) ? beside(range.min, -1) : null),
          max: (range) => (this.scale !== "log" && flat(range) ? beside(range.max, 1) : null),
          splitLine: { lineStyle: { color: token("--line") } },
          ...axis,
          axisLabel: { ...axis.axisLabel, formatter: digits },
        },
        tooltip: {
          trigger: "axis",
          renderMode: "richText",
          backgroundColor: token("--raised"),
          borderColor: token("--line"),
          textStyle: { color: token("--text"), fontFamily: font.fontFamily, fontSize: 12 },
          formatter: (items) =>
            [`step ${items[0].value[0]}`, ...items.map((item) => `${item.seriesName}  ${digits(item.value[1])}`)].join("\n"),
        },
        dataZoom: [{ type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl" }],
        series,
      };
    },

    pick(view, event) {
      const [step] = view.convertFromPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [event.offsetX, event.offsetY]);
      const lines = this.series.get(this.runs[0].id)?.data ?? {};
      const steps = Object.values(lines).flatMap((line) => line.steps);
      if (!steps.length) return;
      this.$emit("step", steps.reduce((best, other) => (Math.abs(other - step) < Math.abs(best - step) ? other : best)));
    },

    empty(chart) {
      this.version;
      return this.series.size > 0 && this.lines(chart).every((line) => !line.points?.steps.length);
    },

    latest(chart) {
      this.version; // drawn anew when data came
      const points = this.series.get(this.runs[0].id)?.data[chart.metric];
      return points?.values.length ? digits(points.values.at(-1)) : "–";
    },

    described(chart) {
      this.version;
      const points = this.series.get(this.runs[0].id)?.data[chart.metric];
      if (!points?.values.length) return `${chart.title}: no values yet`;
      const from = `${digits(points.values[0])} at step ${points.steps[0]}`;
      return `${chart.title}: from ${from} to ${digits(points.values.at(-1))} at step ${points.steps.at(-1)}`;
    },

    png(chart) {
      const view = this.charts.get(chart.metric)?.view;
      if (view) this.save(view.getDataURL({ pixelRatio: 2, backgroundColor: token("--ground") }), `${chart.metric}.png`);
    },

    csv(chart) {
      const rows = ["run,metric,step,value"];
      for (const { run, metric, points } of this.lines(chart))
        points?.steps.forEach((step, index) => rows.push(`${run.id},${metric},${step},${points.values[index]}`));
      const url = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
      this.save(url, `${chart.metric}.csv`);
      URL.revokeObjectURL(url);
    },

    save(url, name) {
      const link = Object.assign(document.createElement("a"), { href: url, download: name.replaceAll("/", "-") });
      link.click();
    },
  },
};
