-- Takes back slots of one key that will not be used.
--
-- KEYS     the free slots, then the state of each quota
-- ARGV     the quotas (see read_quotas), then the slots: at, record, cost, receipt... of each, in numbers
--          of 8 bytes
-- Returns  nothing

local ledger = define_ledger()
ledger.load({ unpack(KEYS, 2) }, KEYS[1], read_quotas(ARGV[1], 1), now)
local size, past, others = ledger.size, {}, {}
local numbers = ledger.unpack(ARGV[2])

for i = 1, #numbers, size do
  local slot = { unpack(numbers, i, i + size - 1) }
  local to = size == 3 and slot[1] <= now and past or others
  to[#to + 1] = slot
end

-- In logs, at once: that is one pass however many they are.
ledger.give_back_all(past)
for _, slot in ipairs(others) do ledger.release(slot) end
ledger.pop_free()

ledger.save()
