package bench

import "slices"

// Row is what a series comes to: a line of a table.
type Row struct {
	Name     string `json:"name"`
	Variant  string `json:"variant,omitempty"` // how it is tuned
	Version  string `json:"version,omitempty"` // of the library
	Broker   string `json:"broker"`
	Topic    string `json:"topic"` // what is in it
	Records  int    `json:"records"`
	Rounds   int    `json:"rounds"`
	Baseline string `json:"baseline"` // the reader that the ratios are to

	Throughput      Spread `json:"records_per_second"`
	CPU             Spread `json:"cpu_ns_per_record"`
	ThroughputRatio Spread `json:"throughput_ratio"`
	CPURatio        Spread `json:"cpu_ratio"`
	Allocs          Spread `json:"allocs_per_record"`
	First           Spread `json:"seconds_to_first_record"`

	// Error is why there are no figures.
	Error string `json:"error,omitempty"`
}

// Spread is the median of the rounds, and the least and the most of them.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// Row returns the figures of a series, whose ratios are to another of the same
// rounds, a record each.
func (s Series) Row(of Series) Row {
	r := Row{
		Name:     s.Name,
		Records:  int(s.Records),
		Rounds:   len(s.Rounds),
		Baseline: of.Name,

		Throughput: s.spread(func(u Usage) float64 { return s.Records * Speed(u) }),
		CPU:        s.spread(func(u Usage) float64 { return CPUTime(u) / s.Records }),
		Allocs:     s.spread(func(u Usage) float64 { return Allocs(u) / s.Records }),
		First:      s.spread(func(u Usage) float64 { return u.First.Seconds() }),
	}
	more := s.Records / of.Records
	r.ThroughputRatio = s.ratio(Speed, of).times(more)
	r.CPURatio = s.ratio(CPUTime, of).times(1 / more)
	return r
}

func (s Series) ratio(f Figure, of Series) Spread {
	median, least, most := s.Ratio(f, of)
	return Spread{median, least, most}
}

func (s Spread) times(x float64) Spread { return Spread{s.Median * x, s.Least * x, s.Most * x} }

func (s Series) spread(f Figure) Spread {
	values := make([]float64, len(s.Rounds))
	for i, u := range s.Rounds {
		values[i] = f(u)
	}
	return SpreadOf(values)
}

// SpreadOf returns the spread of values, of which there is at least one.
func SpreadOf(values []float64) Spread {
	return Spread{Median: Median(values), Least: slices.Min(values), Most: slices.Max(values)}
}
