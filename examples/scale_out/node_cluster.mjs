// A Node cluster: the workers share the cap.
import cluster from "node:cluster";
import { Gate } from "tidegate";

if (cluster.isPrimary) {
  for (let i = 0; i < 4; i++) cluster.fork();
} else {
  const gate = new Gate({ targets: { gpt: { models: "gpt-*", cap: 4 } }, share: "local" });
  const ask = async (question) => {
    const response = await gate.fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-process": String(process.pid) },
      body: JSON.stringify({ model: "gpt-4o-mini", messages: [{ role: "user", content: question }] }),
    });
    return (await response.json()).choices[0].message.content;
  };
  const questions = Array.from({ length: 20 }, (_, number) => `Question ${number}`);
  await Promise.all(questions.map(ask));
  process.exit();
}
