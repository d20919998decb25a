-- The health of an object of a fleet for Argo CD: its condition Valid.
local hs = {status = "Progressing", message = "caisson-kube has not looked at it yet"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
for _, c in ipairs(obj.status.conditions or {}) do
  if c.type == "Valid" then
    hs.message = c.message
    hs.status = c.status == "True" and "Healthy" or "Degraded"
  end
end
return hs
