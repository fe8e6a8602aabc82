-- If the requests of a process wait for units in which this demand costs nothing, only those count that can depart together
-- at the horizon; see State::others in state.rs. Runs within state.lua, only if there are several units.

if competing > 0 then
  local latest = now + horizon
  if suspended_until > latest then latest = suspended_until end
  local mine& = count > 0 and points[(count - 1) * @step + 1 + &] or 0
  for j = 1, competing do
    local <<first&>> = common.first_cost(costs_at[j])
    local elsewhere& = mine& > 0 and 0 or first&
    local most = math.max(1, fits(latest, <<elsewhere&>>))
    if <<elsewhere& > 0 and waiting&[j] > most * elsewhere&| or >> then
      <<waiting&[j]>> = <<math.min(waiting&[j], most * first&)>>
    end
  end
end
