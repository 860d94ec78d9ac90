// Rollouts that were asked for lately. A heat map asks for one as soon as somebody points at it, so
// that the inspector has it when the click arrives. A rollout never changes once it is recorded.

const KEPT = 64;
const asked = new Map(); // path -> promise of the body

export function read(path) {
  if (!asked.has(path)) {
    const answer = ask(path);
    answer.catch(() => asked.delete(path)); // asked again next time
    asked.set(path, answer);
    if (asked.size > KEPT) asked.delete(asked.keys().next().value);
  }
  return asked.get(path);
}

async function ask(path) {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
  return body;
}

export const rollout = (id) => read(`/v1/strop/rollouts/${id}`);

// Which rollout somebody chose, from one part of a page to the others: the server hears of it for the
// address only, and nobody waits for that. An empty id is none.
export function choose(id) {
  document.dispatchEvent(new CustomEvent("strop-rollout", { detail: id }));
}

export function whenChosen(listener) {
  const heard = (event) => listener(event.detail);
  document.addEventListener("strop-rollout", heard);
  return () => document.removeEventListener("strop-rollout", heard);
}
