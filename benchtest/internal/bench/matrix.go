package bench

import "fmt"

// Cell is a combination of what may matter.
type Cell struct {
	ValueSize  int // bytes
	Codec      string
	Partitions int
	Cost       Cost
	Short      bool // it is one of the few that a short run has
}

// Matrix returns all cells: values of 100 B, 1 KB and 10 KB; no compression,
// lz4 and zstd; 1, 8, 64 and 1,000 partitions; work that costs next to nothing,
// a microsecond, or a wait of a millisecond.
func Matrix() (cells []Cell) {
	for _, size := range []int{100, 1000, 10_000} {
		for _, codec := range []string{"none", "lz4", "zstd"} {
			for _, partitions := range []int{1, 8, 64, 1000} {
				for _, cost := range []Cost{None, CPU, Wait} {
					cells = append(cells, Cell{size, codec, partitions, cost,
						partitions == 8 && (size == 100 && codec != "zstd" || size == 10_000 && codec == "zstd" && cost == None)})
				}
			}
		}
	}
	return cells
}

// String returns the cell as the name of a benchmark.
func (c Cell) String() string {
	return fmt.Sprintf("%dB/%s/%dpartitions/%s", c.ValueSize, c.Codec, c.Partitions, c.Cost.name())
}

// Layout returns a topic that takes about a second to read.
func (c Cell) Layout(short bool) Layout {
	l := Layout{Partitions: c.Partitions, ValueSize: c.ValueSize, Codec: c.Codec}
	switch c.Cost {
	case None:
		l.Records = min(1_500_000, 300_000_000/(c.ValueSize+25))
	case CPU:
		l.Records = min(500_000, 300_000_000/(c.ValueSize+25))
	case Wait:
		l.Records = waiters * 400
		l.Records = min(l.Records, 300_000_000/(c.ValueSize+25))
	}
	if short {
		l.Records /= 4
	}
	return l
}

// waiters is how many records wait at the same time where the work is to wait.
const waiters = 256

// Readers returns those that are compared: the loop that one writes by hand for
// this kind of work, and processors.
func (c Cell) Readers() []Reader {
	if c.Cost == Wait {
		return []Reader{Goroutines(waiters, Wait), Parallel(waiters, Wait)}
	}
	return []Reader{Bare(c.Cost), Shared(c.Cost), Partitioned(c.Cost)}
}
