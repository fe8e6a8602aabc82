-- The quotas of one key, joined: twin of ledger.rs.
--
-- KEYS[1] holds the free slots, for each its at, record, cost and receipt in numbers of 8 bytes, and is
-- absent while there are none. KEYS[2] and on hold one quota's state each.

-- How often quotas may push a time later until they settle for one that suits all but those that mind
-- how late it is.
local PATIENCE = 64

local NUMBER = 8

local ledger = {
  counters = {}, free = {}, touched = false, burst_at = 0, burst_size = 0,
  size = 3,  -- of a slot, its receipt included
}

-- Whether slot a was handed out after slot b.
local function is_after(a, b)
  if a[1] ~= b[1] then return a[1] > b[1] end
  if a[2] ~= b[2] then return a[2] > b[2] end
  for i = 4, math.min(#a, #b) do
    if a[i] ~= b[i] then return a[i] > b[i] end
  end
  return #a > #b
end

function ledger.is_last(slot)
  local place = 4
  for _, counter in ipairs(ledger.counters) do
    if not counter:is_last(slot, place) then return false end
    place = place + counter.receipts
  end
  return true
end

function ledger.give_back(slot)
  local place = 4
  for _, counter in ipairs(ledger.counters) do
    counter:give_back(slot, place)
    place = place + counter.receipts
  end
end

-- Gives back slots in whose order nothing lies.
function ledger.give_back_all(slots)
  if ledger.size == 3 then
    for _, counter in ipairs(ledger.counters) do counter:give_back_all(slots) end
  else
    for _, slot in ipairs(slots) do ledger.give_back(slot) end
  end
end

-- Reads the rules from ARGV[1] on (how many; name and three numbers each) and the state that goes with
-- them; returns the place of the next argument.
function ledger.load(now)
  ledger.now = now
  local count = tonumber(ARGV[1])
  for i = 1, count do
    local place = 4 * i - 2
    local counter = algorithms[ARGV[place]].load(KEYS[i + 1], now,
      tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3]))
    ledger.counters[i] = counter
    ledger.size = ledger.size + counter.receipts
  end
  local raw = redis.call('GET', KEYS[1])
  if raw then ledger.load_free(raw) end
  return 4 * count + 2
end

function ledger.load_free(raw)
  local size = ledger.size
  local count = #raw / (size * NUMBER)
  if count < 1 or count % 1 ~= 0 then refuse(KEYS[1]) end
  local past = {}
  for i = 0, count - 1 do
    local slot = unpack_all('I8', NUMBER, raw, i * size * NUMBER + 1, size)
    for j = 1, size do check(slot[j], KEYS[1], ledger.now) end
    if slot[1] < ledger.now then
      past[#past + 1] = slot
    else
      ledger.free[#ledger.free + 1] = slot
    end
  end
  if #past > 0 then
    ledger.give_back_all(past)
    ledger.touched = true
  end
end

function ledger.save()
  for _, counter in ipairs(ledger.counters) do counter:save() end
  if not ledger.touched then return end
  local count = #ledger.free
  if count == 0 then
    redis.call('DEL', KEYS[1])
  else
    -- As long as the state: slots whose time has passed are still to be taken out of the logs.
    local parts = {}
    for i, slot in ipairs(ledger.free) do parts[i] = pack_all('I8', slot) end
    redis.call('SET', KEYS[1], table.concat(parts), 'PX', lifetime(ledger.expires(), ledger.now))
  end
end

-- Lets every quota push the time later until none does; returns it, and its record.
function ledger.earliest(x, cost, margin)
  local last, round = 0, 0
  for _, counter in ipairs(ledger.counters) do last = math.max(last, counter:last_record()) end
  while true do
    local record = ledger.recorded(x, margin)
    if x == ledger.burst_at then record = record + ledger.burst_size * ledger.stagger end
    record = math.max(record, last)
    local late = round < PATIENCE and record - x or math.huge
    local at = x
    for _, counter in ipairs(ledger.counters) do at = counter:earliest(at, late, cost) end
    if at == x then return at, record end
    x, round = at, round + 1
  end
end

function ledger.recorded(at, margin)
  return math.max(at, ledger.now + ledger.round_trip) + margin
    + math.floor((at - ledger.now) / DRIFT)
end

-- The first free slot that is of use, no later than `fresh`.
function ledger.find_free(x, cost, least_margin, fresh)
  for place, slot in ipairs(ledger.free) do
    if slot[1] > fresh then return nil end
    if slot[3] == cost and slot[1] >= x and slot[2] >= ledger.recorded(slot[1], least_margin) then
      return place
    end
  end
end

-- Takes a slot, { at, record, cost, receipt... }; or, if it lies too far ahead, nil and the wait.
function ledger.reserve(x, cost, max_wait, margin, least_margin)
  local at, record = ledger.earliest(x, cost, margin)
  local place = ledger.find_free(x, cost, least_margin, at)
  if place then at = ledger.free[place][1] end
  local wait = at - ledger.now
  max_wait = math.min(max_wait, HORIZON)
  for _, counter in ipairs(ledger.counters) do max_wait = math.min(max_wait, counter:longest_wait(margin)) end
  if wait > max_wait then return nil, wait end
  if place then
    ledger.touched = true
    return table.remove(ledger.free, place)
  end
  if ledger.burst_at ~= at then ledger.burst_at, ledger.burst_size = at, 0 end
  ledger.burst_size = ledger.burst_size + 1
  local slot = { at, record, cost }
  for _, counter in ipairs(ledger.counters) do counter:take(slot) end
  return slot
end

function ledger.release(slot)
  if slot[1] > ledger.now and not ledger.is_last(slot) then
    local place = #ledger.free
    while place > 0 and is_after(ledger.free[place], slot) do place = place - 1 end
    table.insert(ledger.free, place + 1, slot)
    ledger.touched = true
  else
    ledger.give_back(slot)
  end
  ledger.pop_free()
end

-- Free slots at the end leave the state.
function ledger.pop_free()
  while #ledger.free > 0 and ledger.is_last(ledger.free[#ledger.free]) do
    ledger.give_back(table.remove(ledger.free))
    ledger.touched = true
  end
end

function ledger.remaining()
  local remaining = math.huge
  for _, counter in ipairs(ledger.counters) do remaining = math.min(remaining, counter:remaining()) end
  return remaining
end

-- The time from which nothing recorded has any influence.
function ledger.expires()
  local expires = ledger.now
  for _, counter in ipairs(ledger.counters) do expires = math.max(expires, counter:expires()) end
  return expires
end
