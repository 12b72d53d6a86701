package arroyo

import "context"

// starter is a first step that wants its lane before there is a record, as a
// health check of a member without partitions does.
type starter interface {
	Start(context.Context) error
}

func (l *recordLane) startFirst() error {
	if s, ok := l.first.(starter); ok {
		return s.Start(l.ctx)
	}
	return nil
}
