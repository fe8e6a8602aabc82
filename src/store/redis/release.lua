-- Takes back slots that will not be used.
--
-- KEYS     as in reserve.lua
-- ARGV     the rules (see ledger.lua), then for each slot: at, record, cost, receipt...
-- Returns  nothing

local place = ledger.load(server_time())
local size, past, others = ledger.size, {}, {}

for i = place, #ARGV - size + 1, size do
  local slot = {}
  for j = 1, size do slot[j] = tonumber(ARGV[i + j - 1]) end
  local to = size == 3 and slot[1] <= ledger.now and past or others
  to[#to + 1] = slot
end

-- In logs, at once: that is one pass however many they are.
ledger.give_back_all(past)
for _, slot in ipairs(others) do ledger.release(slot) end
ledger.pop_free()

ledger.save()
