-- Takes back slots of one key that will not be used.
--
-- KEYS     what stands aside, then the state of each quota
-- ARGV     the quotas, for each the name of its algorithm and three numbers; then the slots: at, record,
--          cost, receipt... of each, in numbers of 8 bytes; behind when the life began under which they were
--          handed out, or 0
-- Returns  nothing

--@ledger
--@quotas
ledger.load({ unpack(KEYS, 2) }, KEYS[1], quotas, now)
local size, past, others = ledger.size, {}, {}
if not ledger.takes_back(struct.unpack('<I8', ARGV[2])) then return end
local numbers = unpack_all('I8', 8, ARGV[2], 9, math.floor(#ARGV[2] / 8) - 1)

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
