// A rollout as a conversation: the prompt, then each turn with what the environment answered it with.
// Model text is only ever put on the page as text.

import { Rendered } from "/ui/static/markdown.js";

const STOPS = {
  stop: "finished",
  length: "cut off at the token limit",
  context: "ran out of context",
  max_turns: "reached the turn limit",
};

export const stopped = (reason) => STOPS[reason] ?? reason;

// The messages after the prompt; those of the model with a note on how they came about.
export function answered(rollout) {
  return rollout.turns.flatMap((turn, index) => [
    { ...turn.message, note: noted(turn, index, rollout.turns.length), version: turn.version },
    ...turn.observations,
  ]);
}

function noted(turn, index, turns) {
  return [
    turns > 1 ? `turn ${index + 1} of ${turns}` : "completion",
    stopped(turn.stop_reason),
    turn.length ? `${turn.length} ${turn.length === 1 ? "token" : "tokens"}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

export const call = (asked) => `${asked.function.name}(${asked.function.arguments})`;

export const Conversation = {
  components: { Rendered },

  template: `
    <section class="s-column" aria-label="Conversation">
      <div v-for="(message, index) in messages" :key="index" class="s-turn" :class="'s-turn--' + message.role">
        <span class="s-small s-muted">{{ label(message) }}</span>
        <template v-if="message.content">
          <rendered v-if="rendered" :text="message.content"></rendered>
          <pre v-else>{{ message.content }}</pre>
        </template>
        <pre v-for="asked in message.tool_calls || []" :key="asked.id" class="s-call">{{ call(asked) }}</pre>
      </div>
      <p v-if="!rollout.turns.length" class="s-muted">No completion.</p>
    </section>`,

  props: {
    rollout: Object,
    rendered: Boolean,
  },

  computed: {
    messages() {
      return [...this.rollout.prompt, ...answered(this.rollout)];
    },
  },

  methods: {
    call,
    label(message) {
      const version = message.version ?? null;
      const parts = [message.role, message.name, message.note, version === null ? "" : `policy version ${version}`];
      return parts.filter(Boolean).join(" · ");
    },
  },
};
