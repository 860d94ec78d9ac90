// A data file on its way to the server: dropped or chosen, checked there row by row. Whatever is
// wrong with it is shown line by line, and nothing of it is kept.

const PURPOSE = "fine-tune";
const SHOWN = 20;

// "rows.jsonl:3: no messages; add them" → line, problem, remedy. What has no line is shown as it is.
function fault(text, filename) {
  const rest = text.startsWith(`${filename}:`) ? text.slice(filename.length + 1).trimStart() : text;
  const [, line, problem] = rest.match(/^(\d+): (.*)$/s) ?? [null, "", rest];
  return { line, problem };
}

export default {
  template: `
    <section class="s-upload" :class="{ 's-upload--over': over }" @dragover.prevent="over = true" @dragleave.prevent="over = false" @drop.prevent="dropped">
      <input ref="file" type="file" :id="field" :accept="accept" class="s-sr" tabindex="-1" aria-hidden="true" @change="chosen">
      <template v-if="state !== 'sending'">
        <div class="s-row">
          <button type="button" class="s-plain" @click="$refs.file.click()">{{ state === 'refused' ? 'Choose the corrected file' : 'Choose a file' }}</button>
          <span class="s-muted">or drop it here: {{ hint }}</span>
        </div>
      </template>
      <div v-else class="s-column s-tight">
        <div class="s-row">
          <span class="s-grow s-clip">{{ name }}</span>
          <span class="mono s-small s-muted" aria-live="polite">{{ share < 1 ? Math.round(share * 100) + ' %' : 'Checking rows…' }}</span>
          <button type="button" class="s-plain" @click="stop">Stop</button>
        </div>
        <div class="s-progress" role="progressbar" aria-label="Upload" aria-valuemin="0" aria-valuemax="100" :aria-valuenow="Math.round(share * 100)"><div :style="{ width: 100 * share + '%' }"></div></div>
      </div>
      <div v-if="state === 'refused'" class="s-column s-tight" role="alert">
        <p class="s-bad"><strong>{{ name }}</strong> was rejected; nothing was stored. Fix these lines and upload the file again.</p>
        <div class="s-table-wrap"><table class="s-table">
          <thead><tr><th class="s-number">Line</th><th>Problem and fix</th></tr></thead>
          <tbody><tr v-for="(entry, index) in faults" :key="index"><td class="s-number mono">{{ entry.line }}</td><td class="s-break">{{ entry.problem }}</td></tr></tbody>
        </table></div>
      </div>
      <p v-if="state === 'failed'" class="s-error" role="alert">{{ message }}</p>
      <p v-if="state === 'done'" class="s-good" role="status">{{ name }}: {{ rows.toLocaleString('en') }} rows, no errors.</p>
    </section>`,

  props: { accept: String, hint: String },

  data() {
    return { state: "waiting", over: false, name: "", share: 0, faults: [], message: "", rows: 0 };
  },

  created() {
    this.field = `upload-${Math.random().toString(36).slice(2)}`;
  },

  unmounted() {
    this.request?.abort();
  },

  methods: {
    dropped(event) {
      this.over = false;
      const [file] = event.dataTransfer.files;
      if (file && this.state !== "sending") this.send(file);
    },

    chosen(event) {
      const [file] = event.target.files;
      if (file) this.send(file);
      event.target.value = ""; // the same name may be chosen again once it is mended
    },

    send(file) {
      Object.assign(this, { state: "sending", name: file.name, share: 0, faults: [], message: "" });
      const form = new FormData();
      form.append("purpose", PURPOSE);
      form.append("file", file, file.name);
      const request = new XMLHttpRequest();
      this.request = request;
      request.open("POST", "/v1/files");
      request.responseType = "json";
      request.upload.onprogress = (event) => {
        if (event.lengthComputable) this.share = event.loaded / event.total;
      };
      request.upload.onload = () => (this.share = 1);
      request.onload = () => (request.status < 300 ? this.stored(request.response) : this.refused(request));
      request.onerror = () => this.fail("Cannot reach the server. Nothing was stored. Try again.");
      request.onabort = () => (this.state = "waiting");
      request.send(form);
    },

    stop() {
      this.request?.abort();
    },

    stored(file) {
      this.rows = file.rows ?? 0;
      this.state = "done";
      this.$emit("uploaded", file);
    },

    refused(request) {
      const error = request.response?.error;
      if (!error) return this.fail(`The server returned status ${request.status}. Nothing was stored. Try again.`);
      if (request.status !== 400 || error.param !== "file") return this.fail(error.message);
      this.faults = error.message.split("\n").slice(0, SHOWN + 1).map((text) => fault(text, this.name));
      this.state = "refused";
    },

    fail(message) {
      this.message = message;
      this.state = "failed";
    },
  },
};
