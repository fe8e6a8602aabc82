-- The sliding window in buckets, twin of sliding_buckets.rs.
--
-- State: for each bucket in which anything departs, its end in lengths of a bucket and how much does,
-- packed as state.lua says.

local sliding_buckets = { receipts = 0 }
sliding_buckets.__index = sliding_buckets

function sliding_buckets.load(key, now, limit, window, width)
  local self = setmetatable({
    key = key, now = now, limit = limit, window = window, width = width,
    ends = {}, totals = {}, touched = false,
  }, sliding_buckets)
  local raw = redis.call('GET', key)
  if raw then
    local numbers, counts = unpack_times(raw, key, now)
    if not counts then refuse(key) end
    check(numbers[#numbers] * width, key, now)
    local total = 0
    for i = 1, #numbers do
      local stop = numbers[i] * width
      if stop + window > now then
        local place = #self.ends + 1
        total = total + counts[i]
        self.ends[place], self.totals[place] = stop, total
      else
        self.touched = true
      end
    end
  end
  return self
end

function sliding_buckets:end_of(record)
  return record - record % self.width + self.width
end

function sliding_buckets:total()
  return self.totals[#self.totals] or 0
end

function sliding_buckets:count(place)
  return self.totals[place] - (self.totals[place - 1] or 0)
end

-- The first place in `numbers`, which never decrease, of one that is no less than `least`.
function sliding_buckets.find(numbers, least)
  local low, high = 1, #numbers + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if numbers[middle] < least then low = middle + 1 else high = middle end
  end
  return low
end

function sliding_buckets:earliest(x, _, cost)
  local excess = self:total() + cost - self.limit
  if excess <= 0 then return x end
  return math.max(x, self.ends[self.find(self.totals, excess)] + self.window)
end

function sliding_buckets:last_record()
  local last = self.ends[#self.ends]
  return last and last - self.width or 0
end

-- How many of `count` requests worth `cost` may depart at `at`, when the first of them may.
function sliding_buckets:alike(at, cost, count)
  local past = self.find(self.ends, at - self.window + 1) - 1
  local room = self.limit - self:total() + (self.totals[past] or 0)
  return math.min(count, math.floor(room / cost))
end

function sliding_buckets:take(slot, taken, step)
  local record, cost = slot[2], slot[3]
  if step == 0 then taken, cost = 1, taken * cost end
  for i = 0, taken - 1 do
    local stop, total, place = self:end_of(record + i * step), self:total() + cost, #self.ends
    if self.ends[place] ~= stop then place = place + 1 end
    self.ends[place], self.totals[place] = stop, total
  end
  self.touched = true
end

function sliding_buckets:is_last(slot)
  local place = #self.ends
  return place > 0 and self.ends[place] == self:end_of(slot[2]) and self:count(place) >= slot[3]
end

function sliding_buckets:give_back(slot)
  local stop, cost = self:end_of(slot[2]), slot[3]
  local place = self.find(self.ends, stop)
  if self.ends[place] ~= stop or stop + self.window <= self.now then return end
  local count = self:count(place)
  if count < cost then return end
  for i = place, #self.totals do self.totals[i] = self.totals[i] - cost end
  if count == cost then
    table.remove(self.ends, place)
    table.remove(self.totals, place)
  end
  self.touched = true
end

function sliding_buckets:give_back_all(slots)
  for _, slot in ipairs(slots) do self:give_back(slot) end
end

function sliding_buckets:longest_wait() return HORIZON end

function sliding_buckets:remaining()
  return math.max(self.limit - self:total(), 0)
end

function sliding_buckets:expires()
  local last = self.ends[#self.ends]
  return last and last + self.window or 0
end

function sliding_buckets:save()
  if not self.touched then return end
  if #self.ends == 0 then
    redis.call('DEL', self.key)
    return
  end
  local numbers, counts = {}, {}
  for i = 1, #self.ends do
    numbers[i], counts[i] = self.ends[i] / self.width, self:count(i)
  end
  redis.call('PSETEX', self.key, lifetime(self:expires(), self.now), pack_times(numbers, counts))
end

algorithms.buckets = sliding_buckets
