// The tokens of a rollout, one block for each segment: a prompt and what followed it.

const DEEP_NATS = 6; // a token this unlikely gets the strongest colour

export const Segments = {
  template: `
    <section class="s-column" aria-label="Tokens">
      <p v-if="!segments.length" class="s-muted">The tokens of this attempt were not recorded, because the model's endpoint returned only text.</p>
      <p v-else-if="!readable" class="s-muted">This model's tokenizer is not on this machine, so tokens cannot be shown as text.</p>
      <p v-else class="s-small s-muted">A stronger colour means a lower token probability. Underlined tokens were sampled.<template v-if="mixed"> Grey tokens were not sampled: they come from the environment.</template></p>
      <template v-for="(segment, place) in segments" :key="place">
        <h3 v-if="segments.length > 1" class="s-small s-muted">segment {{ place + 1 }} of {{ segments.length }} · {{ segment.token_ids.length }} tokens after a prompt of {{ segment.prompt_tokens }}</h3>
        <pre v-if="segment.tokens" class="s-tokens"><span v-for="(token, index) in segment.tokens" :key="index" :class="token.sampled ? 's-token--sampled' : 's-token--given'" :style="shade(token)" :title="hint(token)">{{ token.text }}</span></pre>
      </template>
    </section>`,

  props: {
    segments: Array,
  },

  computed: {
    readable() {
      return this.segments.some((segment) => segment.tokens);
    },
    mixed() {
      return this.segments.some((segment) => segment.tokens?.some((token) => !token.sampled));
    },
  },

  methods: {
    hint(token) {
      if (!token.sampled) return `not sampled · id ${token.id}`;
      return `p ${Math.exp(token.logprob).toPrecision(3)} · logprob ${token.logprob} · id ${token.id}`;
    },

    shade(token) {
      if (!token.sampled) return {};
      const strength = Math.min(-token.logprob / DEEP_NATS, 1) * 0.6;
      return { backgroundColor: `rgb(from var(--warn) r g b / ${strength.toFixed(2)})` };
    },
  },
};
