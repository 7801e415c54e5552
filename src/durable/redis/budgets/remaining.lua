-- Returns the remaining amount, which is at least 0.

save()
return math.max(0, left())
