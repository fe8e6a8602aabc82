-- The demand of the other processes, and how the capacity is divided by arrival; see demand.rs. Only if there is any.

local function units_of(requests)
  if cost > 0 or requests == 0 then return requests * cost end
  return points[requests * 2]
end

-- When the request with the unit of this rank arrived, counted from 1.
local function arrival_of(unit)
  local i = 2
  while i < count * 2 and points[i] < unit do i = i + 2 end
  if i == 2 then return points[1] end
  local arrival, before = points[i - 3], points[i - 2]
  local behind = (points[i - 1] - arrival) * (unit - before) / (points[i] - before)
  return arrival + behind - behind % 1
end

-- The units of a process that had arrived by then, which is between its first and its last request.
local function arrived_by(j, time)
  local known = detail[j]
  if type(known) == 'number' then
    known = { unpack('<' .. rep('I7I7', byte(tail, known + 11)), tail, known + 12) }
    detail[j] = known
  end
  local i = 3
  while known[i] <= time do i = i + 2 end
  local before = known[i - 1]
  local units = (known[i + 1] - before) * (time - known[i - 2]) / (known[i] - known[i - 2])
  return before + units - units % 1
end

-- The units of a process ahead of a request that arrived then.
function ahead_of(j, time)
  if processes[j] >= process and time > 0 then time = time - 1 end
  if time >= newest[j] then return waiting[j] end
  if time >= oldest[j] then return arrived_by(j, time) end
  return 0
end

-- The units ahead: of all processes, without what can be overtaken until then, or of those that are not overdue.
function ahead(arrival, finish, on_time)
  local sum = 0
  for j = 1, live do
    if not on_time or now <= deadlines[j] then
      local time = arrival
      if finish and deadlines[j] > finish then time = time > 50000 and time - 50000 or 0 end
      sum = sum + ahead_of(j, time)
    end
  end
  return sum
end

-- How many of the first requests may depart until then, after all that arrived before them.
function share(finish)
  local most = cost > 0 and count > 0 and points[count * 2] / cost or count
  most = cost == 0 and most > 8 and 8 or most - most % 1
  if live == 0 then return most end
  local low, high = 0, most + 1
  while high - low > 1 do
    local middle = (low + high) / 2
    middle = middle - middle % 1
    local before, units = units_of(middle - 1), units_of(middle)
    local arrival = arrival_of(units)
    if earliest(now, ahead(arrival, finish) + before, units - before) <= finish
      or earliest(now, ahead(arrival, nil, true) + before, units - before) == now then
      low = middle
    else
      high = middle
    end
  end
  return low
end
