"use strict";
// What the pages need besides htmx: Enter asks, a prepared question is shown in the field, an answer that breaks off says so.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.matches("textarea[name=question]")) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});
document.addEventListener("click", (event) => {
  const chip = event.target.closest("button.chip[name=question]");
  const field = document.querySelector("textarea[name=question]");
  if (chip && field) field.value = chip.value;
});
document.addEventListener("htmx:after:swap", (event) => {
  if (event.target.matches?.(".choice button")) document.querySelector("#form input:not([type=hidden])")?.focus();
});
const heading = () => document.querySelector("#me h1")?.textContent ?? "";
let heard = heading();
document.addEventListener("htmx:after:swap", () => { // for those who hear the page: the round was opened, closed or revealed
  const state = document.getElementById("state");
  if (state && heading() !== heard) state.textContent = heard = heading();
});
let asked = null;
document.addEventListener("htmx:sse:after:message", (event) => { // on a phone the answers begin below what is seen
  const now = document.querySelector("#answers .asked");
  if (!event.target.matches("form") || !now || now === asked) return;
  asked = now;
  if (now.getBoundingClientRect().top > innerHeight * 0.6) now.scrollIntoView({ block: "start" });
});
document.addEventListener("htmx:sse:close", (event) => {
  if (!event.target.matches("form")) return;
  for (const card of document.querySelectorAll("#answers .card")) {
    if (card.querySelector(".ended, .failed")) continue;
    const note = document.createElement("p");
    note.className = "failed";
    note.textContent = "The connection was lost; ask again.";
    card.append(note);
  }
});
function say(event, text) {
  const said = document.getElementById("said");
  if (said && event.target.matches("form, button")) said.textContent = text;
}
document.addEventListener("htmx:before:request", (event) => say(event, "")); // an earlier sentence is over
document.addEventListener("htmx:response:error", (event) => { // nothing is swapped: a proxy's page would take the place of what was written
  const { text, response } = event.detail.ctx;
  if (text.includes("<hx-partial")) return; // the room's sentence, which htmx puts where it belongs
  const plain = response.headers.get("Content-Type")?.startsWith("text/plain");
  say(event, plain ? text : `The room does not answer (HTTP ${response.status}); try again in a moment.`);
});
document.addEventListener("htmx:error", (event) => say(event, "The room cannot be reached; is this phone still in its network?"));
