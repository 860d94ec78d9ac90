// The little markup that models write, as elements of the page. Text never becomes HTML: every
// piece is put there as text, links lead to http(s) only, and no image is ever loaded.

import { h } from "vue";

const SPAN = /(`+)([\s\S]+?)\1|\*\*([^*]+?)\*\*|\*([^*\s][^*]*?)\*|(!?)\[([^\]]*)\]\(([^\s)]*)[^)]*\)/;
const ITEM = /^\s*(?:[-*+]|\d{1,3}[.)])\s+/;
const MOST_DEPTH = 8;

function spans(text, depth = 0) {
  const found = depth < MOST_DEPTH && SPAN.exec(text);
  if (!found) return text ? [text] : [];
  const [whole, , code, bold, italic, image, label, address] = found;
  const rest = spans(text.slice(found.index + whole.length), depth);
  return [text.slice(0, found.index), span({ whole, code, bold, italic, image, label, address }, depth + 1), ...rest];
}

function span({ whole, code, bold, italic, image, label, address }, depth) {
  if (code !== undefined) return h("code", code);
  if (bold !== undefined) return h("strong", spans(bold, depth));
  if (italic !== undefined) return h("em", spans(italic, depth));
  if (image) return `[image: ${label || address}]`;
  if (!/^https?:\/\//i.test(address)) return whole;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: address }, label || address);
}

const lines = (taken) => taken.flatMap((line, index) => (index ? [h("br"), ...spans(line)] : spans(line)));

// Each kind of block says how many lines it takes from here, and what they become.
function block(all, at) {
  const line = all[at];
  const fence = /^\s*(```|~~~)/.exec(line);
  if (fence) {
    let end = at + 1;
    while (end < all.length && !all[end].trimStart().startsWith(fence[1])) end += 1;
    return [end + 1, h("pre", h("code", all.slice(at + 1, end).join("\n")))];
  }
  const heading = /^#{1,6}\s+(.*)$/.exec(line);
  if (heading) return [at + 1, h("p", h("strong", spans(heading[1])))]; // a heading of the page it is not
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) return [at + 1, h("hr")];
  const run = (belongs) => {
    let end = at;
    while (end < all.length && belongs(all[end])) end += 1;
    return end;
  };
  if (ITEM.test(line)) {
    const end = run((text) => ITEM.test(text));
    const first = /^\s*(\d+)/.exec(line);
    const items = all.slice(at, end).map((text) => h("li", spans(text.replace(ITEM, ""))));
    return [end, first ? h("ol", { start: Number(first[1]) }, items) : h("ul", items)];
  }
  if (/^\s*>/.test(line)) {
    const end = run((text) => /^\s*>/.test(text));
    return [end, h("blockquote", lines(all.slice(at, end).map((text) => text.replace(/^\s*>\s?/, ""))))];
  }
  const end = run((text) => text.trim() && !/^\s*(```|~~~|>)|^#{1,6}\s/.test(text) && !ITEM.test(text));
  return [Math.max(end, at + 1), h("p", lines(all.slice(at, Math.max(end, at + 1))))];
}

export function blocks(text) {
  const all = String(text ?? "").split("\n");
  const found = [];
  for (let at = 0; at < all.length; ) {
    if (!all[at].trim()) {
      at += 1;
      continue;
    }
    const [next, element] = block(all, at);
    found.push(element);
    at = next;
  }
  return found;
}

export const Rendered = {
  props: { text: String },
  render() {
    return h("div", { class: "s-rendered" }, blocks(this.text));
  },
};
