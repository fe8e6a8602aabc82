-- Reserves slots.
--
-- KEYS     [1] free slots, [2..] the state of each quota
-- ARGV     the rules (see ledger.lua), the margin, the least margin with which a free slot is of use,
--          what the policy asks of it at least, how long the answer takes, how much the margin grows
--          within a burst, the time before which no slot may lie, then for each run of like requests:
--          how many, the cost of each, the longest wait; one of -1 asks only how long it would be
-- Returns  the server's time, how many more may depart now, the time until all may; then runs of
--            n > 0, at, record, receipt...   n requests have this slot each
--            n < 0, wait                     -n requests would have to wait so long
--          as integers in microseconds

local now = server_time()
local place = ledger.load(now)
local margin, least_margin = tonumber(ARGV[place]), tonumber(ARGV[place + 1])
local longest_wait = ledger.longest_wait(tonumber(ARGV[place + 2]))
ledger.round_trip, ledger.stagger = tonumber(ARGV[place + 3]), tonumber(ARGV[place + 4])
local x = math.max(now, tonumber(ARGV[place + 5]))
local runs, size = { now }, 3
local run_at, run_record, run_place

for i = place + 6, #ARGV, 3 do
  local count, cost, max_wait = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  max_wait = math.min(max_wait, longest_wait)
  while count > 0 do
    local slot, wait = ledger.reserve(x, cost, max_wait, margin, least_margin)
    if not slot then
      runs[size + 1], runs[size + 2] = -count, wait
      size, run_at = size + 2, nil
      break
    end
    x = slot[1]
    if #slot == 3 and run_at == x and run_record == slot[2] then
      runs[run_place] = runs[run_place] + 1
    else
      run_at, run_record, run_place = x, slot[2], size + 1
      runs[size + 1], runs[size + 2], runs[size + 3] = 1, x, slot[2]
      size = size + 3
      for j = 4, #slot do
        size = size + 1
        runs[size] = slot[j]
      end
    end
    count = count - 1
  end
  -- A run never spans two costs.
  run_at = nil
end

ledger.save()
runs[2], runs[3] = ledger.remaining(margin), ledger.expires() - now
return runs
