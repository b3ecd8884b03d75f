import { crm } from "/apis/crm.ts";

const project = await crm("POST /projects", { body: { name: "Migration" } });
for (const title of ["Inventory", "Move data", "Switch over"]) {
  await crm("POST /projects/{id}/tasks", { path: { id: project.id }, body: { title } });
}
console.log("made", project.id);
