-- The quotas of one key, joined: twin of ledger.rs.
--
-- KEYS[1] holds the free slots, a MessagePack array of { at, record, cost, receipt... }, and is absent
-- while there are none. KEYS[2] and on hold one quota's state each.

local DRIFT = 50000
local HORIZON = 10 * 365 * 24 * 3600 * 1000000

local function forget_number(self, record, cost, before)
  if self:is_last(record, cost, before) then
    self.number = before
    self.touched = true
  end
end

for _, algorithm in ipairs({ spacing, gcra }) do
  algorithm.is_number = true
  function algorithm:is_last(record, cost, before)
    return before ~= nil and self:after(before, record, cost) == self.number
  end
  function algorithm:last_record() return 0 end
  function algorithm:expires() return self.number end
  function algorithm:save()
    if self.touched then save_number(self.key, self.number, self.now) end
  end
  algorithm.give_back = forget_number
end

local algorithms = { log = sliding_log, spacing = spacing, gcra = gcra }

local ledger = { counters = {}, free = {}, touched = false, burst_at = 0, burst_size = 0 }

-- Whether slot a was handed out after slot b.
local function is_after(a, b)
  if a[1] ~= b[1] then return a[1] > b[1] end
  if a[2] ~= b[2] then return a[2] > b[2] end
  for i = 4, math.min(#a, #b) do
    if a[i] ~= b[i] then return a[i] > b[i] end
  end
  return #a > #b
end

-- Calls `visit` with each counter and what the slot's receipt holds for it.
function ledger.each(slot, visit)
  local place = 4
  for _, counter in ipairs(ledger.counters) do
    local before
    if counter.is_number then
      before = slot[place]
      place = place + 1
    end
    visit(counter, before)
  end
end

function ledger.is_last(slot)
  local last = true
  ledger.each(slot, function(counter, before)
    last = last and counter:is_last(slot[2], slot[3], before)
  end)
  return last
end

function ledger.give_back(slot)
  ledger.each(slot, function(counter, before) counter:give_back(slot[2], slot[3], before) end)
end

-- Reads the rules from ARGV[1] on (how many; name and two numbers each) and the state that goes with
-- them; returns the place of the next argument.
function ledger.load(now)
  ledger.now = now
  local count = tonumber(ARGV[1])
  for i = 1, count do
    local place = 3 * i - 1
    local algorithm = algorithms[ARGV[place]]
    ledger.counters[i] = algorithm.load(
      KEYS[i + 1], now, tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2]))
  end
  local raw = redis.call('GET', KEYS[1])
  if raw then
    local read, free = pcall(cmsgpack.unpack, raw)
    if not read or type(free) ~= 'table' then refuse(KEYS[1]) end
    for _, slot in ipairs(free) do
      if type(slot) ~= 'table' or #slot < 3 then refuse(KEYS[1]) end
      for _, number in ipairs(slot) do check(number, KEYS[1], now) end
    end
    local past = 0
    for i, slot in ipairs(free) do
      if slot[1] < now then
        ledger.give_back(slot)
        past = i
      end
    end
    for i = past + 1, #free do ledger.free[i - past] = free[i] end
    ledger.touched = past > 0
  end
  return 3 * count + 2
end

function ledger.save()
  for _, counter in ipairs(ledger.counters) do counter:save() end
  if not ledger.touched then return end
  local count = #ledger.free
  if count == 0 then
    redis.call('DEL', KEYS[1])
  else
    -- As long as the state: slots whose time has passed are still to be taken out of the logs.
    redis.call('SET', KEYS[1], cmsgpack.pack(ledger.free), 'PX', lifetime(ledger.expires(), ledger.now))
  end
end

-- Lets every quota push the time later until none does.
function ledger.earliest(x, cost)
  local at
  repeat
    at = x
    for _, counter in ipairs(ledger.counters) do x = counter:earliest(x, cost) end
  until x == at
  return at
end

function ledger.recorded(at, margin)
  return math.max(at, ledger.now + ledger.round_trip) + margin
    + math.floor((at - ledger.now) / DRIFT)
end

-- How many requests of this call, ahead of one that has this slot, have the same.
function ledger.join_burst(at)
  if ledger.burst_at ~= at then ledger.burst_at, ledger.burst_size = at, 0 end
  ledger.burst_size = ledger.burst_size + 1
  return ledger.burst_size - 1
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
  local at = ledger.earliest(x, cost)
  local place = ledger.find_free(x, cost, least_margin, at)
  if place then at = ledger.free[place][1] end
  local wait = at - ledger.now
  if wait > math.min(max_wait, HORIZON) then return nil, wait end
  if place then
    ledger.touched = true
    return table.remove(ledger.free, place)
  end
  local record = ledger.recorded(at, margin) + ledger.join_burst(at) * ledger.stagger
  for _, counter in ipairs(ledger.counters) do record = math.max(record, counter:last_record()) end
  local slot = { at, record, cost }
  for _, counter in ipairs(ledger.counters) do slot[#slot + 1] = counter:take(record, cost) end
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
