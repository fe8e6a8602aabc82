-- The demand of the other processes, and how the capacity is divided by arrival; see `Others` in order.rs. Runs within state.lua,
-- only if there is any.

-- The units of the first so many requests of this call.
local function units_of(requests)
  if total_cost > 0 or requests == 0 then return <<requests * cost&>> end
  local index = (requests - 1) * @step + 1
  return <<points[index + &]>>
end

-- The units of announcement j that are ahead of a request that arrived then. `described` are the points of its demand.
local described = {}
function ahead_of(j, time)
  if processes[j] >= process then time = time - 1 end
  if time >= newest[j] then return <<waiting&[j]>> end
  if time < oldest[j] then return <<0>> end
  local points = described[j]
  if not points then
    local offset = costs_at[j] + @detail
    points = { unpack('<' .. rep('I7@sums', byte(raw, offset - 1)), raw, offset) }
    -- Those beyond may be left out; see other_units.lua.
    for k = 1 + &, #points, @step do if points[k] > waiting&[j] then points[k] = waiting&[j] end end --units
    described[j] = points
  end
  local i = @step + 1
  -- The points of a damaged value may end early.
  while points[i] and points[i] <= time do i = i + @step end
  if not points[i] then return <<waiting&[j]>> end
  local last = i - @step
  local more& = (points[i + &] - points[last + &]) * (time - points[last]) / (points[i] - points[last])
  return <<points[last + &] + (more& - more& % 1)>>
end

-- True if any request of announcement j is ahead of one that arrived then. A field, as Lua limits the number of local variables.
function processes.is_ahead(j, time)
  return oldest[j] < time or oldest[j] == time and processes[j] < process
end

-- The units ahead by arrival: of all processes, or with shares, of those of the same share. With `horizon_end`, without what can
-- be overtaken until then; with `on_time`, only of processes that are not overdue. The sum ends where it leaves no room until
-- `horizon_end`, as more changes nothing, unless departures leave a window that soon. With shares, order.lua also counts the units
-- of its own process before the request.
local known& = {}
function ahead(arrival, _, horizon_end, on_time)
  on_time = on_time and deadlines.are_past
  local is_plain = not horizon_end and not on_time
  if is_plain and known1[arrival] then return <<known&[arrival]>> end
  local deadlines, oldest, newest, rivals, own = deadlines, oldest, newest, fair and rivals, fair and fair.own
  local <<units&, sum&>> = <<waiting&, 0>>
  local enough = horizon_end and 0 or 9007199254740992 --unit
  for j = 1, competing do
    if (not rivals or rivals[j] == own) and (not on_time or now <= deadlines[j]) then
      local time = arrival
      if horizon_end and deadlines[j] > horizon_end then time = time - @TOLERANCE end
      if time > newest[j] then
        sum& = sum& + units&[j]
      elseif time >= oldest[j] then
        local <<more&>> = ahead_of(j, time)
        sum& = sum& + more&
      end
      if sum1 > enough and not common.has_short_window then --unit
        if earliest(now, sum1, 1) > horizon_end then return sum1 end --unit
        enough = 2 * sum1 --unit
      end --unit
    end
  end
  if is_plain then known&[arrival] = sum& end
  return <<sum&>>
end

-- How many of the first `most` requests may depart until `horizon_end`, after all requests of other processes that are ahead.
function due_requests(most, horizon_end)
  local low, high = 0, most + 1
  while high - low > 1 do
    local middle = (low + high) / 2
    middle = middle - middle % 1
    local <<before&>> = units_of(middle - 1)
    local <<units&>> = units_of(middle)
    local each& = units& - before&
    -- Behind those before it, it needs room in each of their units.
    if each& == 0 and units& > 0 then each& = 1 end --units
    before& = units& - each& --units
    local arrival = common.arrival_of(points, totals, <<units&| + >>)
    local before = <<before&| + >>
    local <<others&>> = ahead(arrival, before, horizon_end)
    local is_due = earliest(now, <<others& + before&>>, <<each&>>) <= horizon_end
    if not is_due then
      <<others&>> = ahead(arrival, before, nil, true)
      is_due = earliest(now, <<others& + before&>>, <<each&>>) == now
    end
    if is_due then
      low = middle
    else
      high = middle
    end
  end
  return low
end
