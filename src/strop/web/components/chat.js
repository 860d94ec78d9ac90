// One prompt to up to four models side by side, streamed from the API's own chat completions.

const token = () => crypto.randomUUID?.() ?? String(Math.random());

async function* pieces(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}

export default {
  template: `
    <div class="s-chat">
      <div class="s-chat-columns" :style="{ '--columns': columns.length }">
        <section v-for="column in columns" :key="column.key" class="s-card s-chat-column" :aria-label="column.model || 'No model'">
          <div class="s-row">
            <select class="s-input s-grow" v-model="column.model" aria-label="Model" @change="changed">
              <option value="" disabled>Select a model</option>
              <option v-for="model in models" :key="model" :value="model">{{ model }}</option>
            </select>
            <button v-if="columns.length > 1" class="s-chart-tool" aria-label="Remove this model" @click="remove(column)">✕</button>
          </div>
          <div class="s-chat-log" aria-live="polite">
            <p v-if="!column.messages.length" class="s-muted s-chat-nothing">{{ models.length ? 'No messages yet. Each message you send goes to all models here.' : 'No models available. Deploy a checkpoint first.' }}</p>
            <div v-for="(message, index) in column.messages" :key="index" class="s-turn" :class="'s-turn--' + message.role">
              <span class="s-small s-muted">{{ message.role }}</span>
              <pre>{{ message.content }}</pre>
            </div>
            <p v-if="column.fault" class="s-error" role="alert">{{ column.fault }}</p>
          </div>
          <p class="s-small s-muted mono">{{ column.figures || '\u00a0' }}</p>
        </section>
      </div>
      <details class="s-chat-settings">
        <summary>Settings</summary>
        <div class="s-column">
          <label class="s-column">System prompt<textarea class="s-input" rows="2" v-model="system" @change="changed"></textarea></label>
          <div class="s-row">
            <label>Temperature <input class="s-input" type="number" min="0" max="2" step="0.1" v-model.number="temperature" @change="changed"></label>
            <label>Max tokens <input class="s-input" type="number" min="1" v-model.number="limit" @change="changed"></label>
          </div>
        </div>
      </details>
      <form class="s-row" @submit.prevent="send">
        <textarea class="s-input s-grow" rows="3" v-model="prompt" aria-label="Message" placeholder="Message to all models" @keydown.enter.exact.prevent="send"></textarea>
        <div class="s-column">
          <button v-if="!busy" class="s-plain s-plain--primary" type="submit" :disabled="!ready">Send</button>
          <button v-else class="s-plain" type="button" @click="stop">Stop</button>
          <button class="s-plain" type="button" @click="clear">Clear</button>
          <button class="s-plain" type="button" v-if="columns.length < 4" @click="add">Add a model</button>
        </div>
      </form>
    </div>`,

  props: {
    models: Array,
    chosen: Array, // models to begin with
    messages: Array, // a conversation that comes from elsewhere, say a rollout
    settings: Object, // system, temperature, limit
  },

  data() {
    return { columns: [], prompt: "", system: "", temperature: 0.7, limit: 256, busy: 0 };
  },

  created() {
    Object.assign(this, this.settings);
    const turns = [...(this.messages ?? [])];
    if (turns[0]?.role === "system") this.system = turns.shift().content;
    if (turns.at(-1)?.role === "user") this.prompt = turns.pop().content;
    const names = this.chosen?.length ? this.chosen : [this.models[0] ?? ""];
    this.columns = names.map((model) => this.column(model, turns));
    this.abort = new AbortController();
  },

  unmounted() {
    this.abort.abort();
  },

  computed: {
    ready() {
      return this.prompt.trim() && this.columns.every((column) => column.model);
    },
  },

  methods: {
    column(model, messages = []) {
      return { key: token(), model, messages: messages.map((message) => ({ ...message })), fault: "", figures: "" };
    },

    add() {
      const used = new Set(this.columns.map((column) => column.model));
      this.columns.push(this.column(this.models.find((model) => !used.has(model)) ?? this.models[0] ?? ""));
      this.changed();
    },

    remove(column) {
      this.columns = this.columns.filter((other) => other !== column);
      this.changed();
    },

    changed() {
      const { system, temperature, limit } = this;
      this.$emit("changed", { models: this.columns.map((column) => column.model), system, temperature, limit });
    },

    clear() {
      this.stop();
      for (const column of this.columns) Object.assign(column, { messages: [], fault: "", figures: "" });
    },

    stop() {
      this.abort.abort();
      this.abort = new AbortController();
    },

    send() {
      if (!this.ready || this.busy) return;
      const content = this.prompt.trim();
      this.prompt = "";
      for (const column of this.columns) {
        column.messages.push({ role: "user", content });
        this.ask(column, this.abort.signal);
      }
    },

    async ask(column, signal) {
      this.busy += 1;
      column.fault = "";
      const system = this.system.trim() ? [{ role: "system", content: this.system }] : [];
      const body = {
        model: column.model,
        messages: [...system, ...column.messages],
        temperature: this.temperature,
        max_completion_tokens: this.limit,
        stream: true,
        stream_options: { include_usage: true },
      };
      column.messages.push({ role: "assistant", content: "" });
      const answer = column.messages.at(-1);
      const began = performance.now();
      try {
        const headers = { "Content-Type": "application/json" };
        const response = await fetch("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
        if (!response.ok) throw new Error((await response.json()).error?.message ?? response.statusText);
        for await (const chunk of pieces(response)) {
          answer.content += chunk.choices[0]?.delta.content ?? "";
          if (chunk.usage) column.figures = this.told(chunk.usage, performance.now() - began);
        }
      } catch (error) {
        if (error.name !== "AbortError") column.fault = error.message;
        if (!answer.content) column.messages.pop();
      } finally {
        this.busy -= 1;
      }
    },

    told(usage, milliseconds) {
      const rate = usage.completion_tokens / (milliseconds / 1000);
      return `${usage.completion_tokens} tokens · ${(milliseconds / 1000).toFixed(1)} s · ${rate.toFixed(0)} tokens/s`;
    },
  },
};
