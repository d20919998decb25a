-- The health of a Site for Argo CD: whether nodes are given what the objects say. What waits
-- for a person is Suspended.
local hs = {status = "Progressing", message = "caisson-kube has not looked at it yet"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local of = {}
for _, c in ipairs(obj.status.conditions or {}) do
  of[c.type] = c
end
for _, kind in ipairs({"Valid", "Planned", "Published"}) do
  local c = of[kind]
  if c == nil then
    return hs
  end
  hs.message = c.message
  if c.status ~= "True" then
    local waits = {RolloutUnderWay = "Progressing", WaitsForApproval = "Suspended", NobodySigns = "Suspended", LayerMissing = "Suspended"}
    hs.status = waits[c.reason] or "Degraded"
    return hs
  end
end
hs.status = "Healthy"
return hs
