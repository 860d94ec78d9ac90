// What code editors need beyond their toolkit: a name for screen readers, the colours of the
// page, and completion of what a reward function gets to see.

const MEMBERS = {
  sample: {
    output_text: "text of the last turn",
    output_json: "output_text parsed as JSON, or None",
    output_tools: "tool calls of the last turn",
    choices: "choices, as in OpenAI's chat completions",
    trajectories: "turns with response, tool_calls and tool_results",
    messages: "all messages after the prompt",
    stop_reason: "stop, or length if truncated",
  },
  item: {
    prompt: "the last user message",
    reference: "the reference answer, or None",
    metadata: "the row's metadata fields",
    messages: "the row's messages",
  },
};

function members(context) {
  const found = context.matchBefore(/\b(sample|item)\.\w*/);
  if (!found) return null;
  const owner = found.text.split(".")[0];
  const options = Object.entries(MEMBERS[owner]).map(([label, detail]) => ({ label, detail, type: "property", boost: 1 }));
  return { from: found.from + owner.length + 1, options, validFor: /^\w*$/ };
}

async function complete(editor) {
  const library = await import("nicegui-codemirror");
  const data = library.EditorState.languageData.of(() => [{ autocomplete: members }]);
  editor.dispatch({ effects: library.StateEffect.appendConfig.of(data) });
}

// Themes of the toolkit whose every colour can be read on its ground (WCAG AA).
function colours(component) {
  const theme = document.body.classList.contains("body--dark") ? "vscodeDark" : "vscodeLight";
  if (component.shownTheme === theme) return;
  component.shownTheme = theme;
  component.setTheme(theme);
}

const known = new WeakSet();

async function look() {
  for (const element of document.querySelectorAll(".nicegui-codemirror")) {
    const component = getElement(element);
    if (!component?.editorPromise) continue;
    const editor = await component.editorPromise;
    if (known.has(editor)) continue;
    known.add(editor);
    editor.contentDOM.setAttribute("aria-label", element.dataset.label ?? "Code");
    editor.scrollDOM.setAttribute("tabindex", "0"); // who only reads scrolls by keys
    if (element.dataset.language === "python") complete(editor);
    colours(component);
  }
}

new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
new MutationObserver(() => {
  for (const element of document.querySelectorAll(".nicegui-codemirror")) {
    const component = getElement(element);
    if (component?.editor) colours(component);
  }
}).observe(document.body, { attributes: true, attributeFilter: ["class"] });

// What somebody typed and did not save is not dropped without asking.
addEventListener("beforeunload", (event) => {
  if (document.querySelector("[data-unsaved]")) event.preventDefault();
});
