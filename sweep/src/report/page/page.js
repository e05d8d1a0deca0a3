// A nicety: the page says the same without it.
const button = document.querySelector(".copy");
const lines = document.querySelector(".lines");
button.hidden = false;
button.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(lines.textContent);
    button.textContent = "Copied";
  } catch {
    // Where the clipboard is not ours to write: select, so that the reader's own keys copy.
    getSelection().selectAllChildren(lines);
    button.textContent = "Selected";
  }
});
