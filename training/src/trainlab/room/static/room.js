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
document.addEventListener("htmx:error", (event) => {
  const said = document.getElementById("said");
  if (said && event.target.matches("form, button")) said.textContent = "The room cannot be reached; is this phone still in its network?";
});
