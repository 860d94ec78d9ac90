// One rollout: what it was worth and why, the conversation, its tokens, its logs, and its group.
// Model text is only ever put on the page as text.

import { Rendered } from "/ui/static/markdown.js";
import { choose, read, rollout as readRollout, whenChosen } from "/ui/static/rollouts.js";

const digits = (value) => (value === null || value === undefined ? "–" : Number(value.toFixed(3)).toString());

const VIEWS = ["Conversation", "Tokens", "Group", "Logs", "JSON"];
const DEEP_NATS = 6; // a token this unlikely gets the strongest colour

export default {
  components: { Rendered },

  template: `
    <p v-if="!current" class="s-empty">Select an attempt: click it, or move with the arrow keys and press Enter.</p>
    <article class="s-inspector" v-else-if="rollout" :aria-label="title">
      <header class="s-row">
        <h2 class="s-grow">{{ title }}</h2>
        <span v-if="rollout.stop_reason === 'length'" class="s-badge s-badge--warn">truncated</span>
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
        <dt>Advantage</dt><dd class="mono">{{ digits(rollout.advantage) }}</dd>
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

      <section v-if="view === 'Conversation'" class="s-column">
        <div v-for="(message, index) in conversation" :key="index" class="s-turn" :class="'s-turn--' + message.role">
          <span class="s-small s-muted">{{ message.role }}{{ message.answer ? ' · completion' : '' }}</span>
          <rendered v-if="rendered" :text="message.content"></rendered>
          <pre v-else>{{ message.content }}</pre>
          <pre v-for="call in message.tool_calls || []" :key="call.id" class="s-call">{{ call.function.name }}({{ call.function.arguments }})</pre>
        </div>
      </section>

      <section v-else-if="view === 'Tokens'">
        <p v-if="!rollout.tokens" class="s-muted">This model's tokenizer is not on this machine, so tokens cannot be shown as text.</p>
        <p v-else class="s-small s-muted">A stronger colour means a lower token probability. Underlined tokens are trained on.</p>
        <pre class="s-tokens"><span v-for="(token, index) in tokens" :key="index" :class="{ 's-token--trained': token.sampled }" :style="shade(token)" :title="token.hint">{{ token.text }}</span></pre>
      </section>

      <section v-else-if="view === 'Group'" class="s-group">
        <button v-for="other in group" :key="other.id" class="s-card s-group-item" :aria-current="other.id === rollout.id" @click="pick(other.id)">
          <span class="s-row s-small"><strong>attempt {{ other.sample + 1 }}</strong><span class="s-grow"></span><span class="mono">{{ other.failure?.cause || digits(other.reward) }}</span></span>
          <pre>{{ other.messages.at(-1)?.content }}</pre>
        </button>
      </section>

      <section v-else-if="view === 'Logs'"><pre>{{ rollout.logs || 'No logs.' }}</pre></section>
      <section v-else><pre>{{ raw }}</pre></section>
    </article>
    <p v-else-if="fault" class="s-error" role="alert">{{ fault }}</p>
    <p v-else class="s-muted" aria-busy="true">Loading…</p>`,

  props: {
    id: String, // of the rollout; empty while none is chosen
    follows: Boolean, // shows what is chosen elsewhere on the page
    initial: Object, // show: the view; text: "rendered"
  },

  data() {
    return { current: this.id, rollout: null, group: [], fault: "", view: VIEWS[0], rendered: false, copied: false };
  },

  created() {
    this.views = VIEWS;
    this.digits = digits;
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
      return `Step ${this.rollout.step}, attempt ${this.rollout.sample + 1}`;
    },
    parts() {
      return this.components().filter((part) => part.weight);
    },
    logged() {
      return this.components().filter((part) => !part.weight);
    },
    conversation() {
      return [...this.rollout.prompt, ...this.rollout.messages.map((message) => ({ ...message, answer: true }))];
    },
    tokens() {
      return (this.rollout.tokens ?? []).map((token) => ({
        ...token,
        hint: token.sampled ? `p ${Math.exp(token.logprob).toPrecision(3)} · logprob ${token.logprob} · id ${token.id}` : `id ${token.id}`,
      }));
    },
    length() {
      const sampled = this.rollout.tokens?.filter((token) => token.sampled).length;
      return `${sampled ?? this.rollout.token_ids.length} tokens after a prompt of ${this.rollout.prompt_tokens}`;
    },
    times() {
      return Object.entries(this.rollout.timing).map(([name, seconds]) => `${name} ${digits(seconds)} s`).join(" · ");
    },
    raw() {
      return JSON.stringify(this.rollout, null, 2);
    },
    playable() {
      return this.rollout.prompt.length > 0;
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

    pick(id) {
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
        const rollout = await readRollout(wanted);
        if (wanted !== this.current) return; // another one was chosen meanwhile
        Object.assign(this, { rollout, fault: "", copied: false });
        if (this.view === "Group") this.loadGroup();
      } catch (error) {
        Object.assign(this, { rollout: null, fault: `Cannot load this attempt: ${error.message}` });
      }
    },

    async loadGroup() {
      try {
        this.group = (await read(`/v1/strop/rollouts/${this.current}/group`)).data;
      } catch (error) {
        this.fault = error.message;
      }
    },

    shade(token) {
      if (!token.sampled) return {};
      const strength = Math.min(-token.logprob / DEEP_NATS, 1) * 0.6;
      return { backgroundColor: `rgb(from var(--warn) r g b / ${strength.toFixed(2)})` };
    },

    async copy() {
      await navigator.clipboard.writeText(this.raw);
      this.copied = true;
    },
  },
};
