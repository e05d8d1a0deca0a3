// Adds a copy button. The page has the same content without this script.
const button = document.querySelector(".copy");
const lines = document.querySelector(".lines");
button.hidden = false;
button.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(lines.textContent);
    button.textContent = "Copied";
  } catch {
    // The clipboard is not available: select the lines, so that the reader can copy them.
    getSelection().selectAllChildren(lines);
    button.textContent = "Selected";
  }
});
