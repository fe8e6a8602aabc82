-- Takes back slots that will not be used.
--
-- KEYS     as in reserve.lua
-- ARGV     the rules (see ledger.lua), then for each slot: at, record, cost, receipt...
-- Returns  nothing

local place = ledger.load(server_time())
local size = 3
for _, counter in ipairs(ledger.counters) do
  if counter.is_number then size = size + 1 end
end

for i = place, #ARGV - size + 1, size do
  local slot = {}
  for j = 1, size do slot[j] = tonumber(ARGV[i + j - 1]) end
  ledger.release(slot)
end

ledger.save()
