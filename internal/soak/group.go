package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// group is a group of one protocol: a member that is watched, and guests that
// come and go.
type group struct {
	w        *world
	protocol string
	name     string
	watched  *member
	rows     []row

	mu     sync.Mutex // held while guests are changed
	guests []*member
	count  int
	events int // so far
}

const maxGuests = 3

func (g *group) start() (*member, error) {
	g.count++
	return startMember(g.w.kafka.Brokers()[0], order{
		Name:     fmt.Sprintf("%s-%d", g.protocol, g.count),
		Protocol: g.protocol,
		Group:    g.name,
		Topic:    g.w.topic,
		Dead:     g.w.dead,
	})
}

// churn goes on until ctx ends: something happens every few seconds.
func (g *group) churn(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5*time.Second + rand.N(10*time.Second)):
		}
		if err := g.happen(ctx); err != nil {
			return fmt.Errorf("%s: %w", g.protocol, err)
		}
	}
}

func (g *group) happen(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events++
	if err := g.accidents(); err != nil {
		return err
	}
	dice := rand.IntN(10)
	switch {
	case dice < 2, dice < 5 && len(g.guests) == 0:
		if len(g.guests) == maxGuests {
			return nil
		}
		g.w.say(g, "a guest joins")
		m, err := g.start()
		if err != nil {
			return err
		}
		g.guests = append(g.guests, m)
	case dice < 4:
		g.w.say(g, "a guest leaves")
		m := g.guests[0]
		g.guests = g.guests[1:]
		return g.left(m)
	case dice < 5:
		g.w.say(g, "a guest is killed")
		m := g.guests[0]
		g.guests = g.guests[1:]
		return m.kill()
	default:
		g.cut(ctx)
	}
	return nil
}

// cut does something to the network of the member that is watched. The mutex is
// held.
func (g *group) cut(ctx context.Context) {
	lasts := 100*time.Millisecond + rand.N(3*time.Second)
	if rand.IntN(4) == 0 {
		lasts = session + rand.N(session) // its partitions go to others
	}
	if rand.IntN(2) == 0 {
		g.w.say(g, fmt.Sprintf("it is cut off for %v", lasts))
		g.watched.proxy.Cut()
	} else {
		g.w.say(g, fmt.Sprintf("nothing gets through for %v", lasts))
		g.watched.proxy.BlackHole()
	}
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
	}
	g.watched.proxy.Heal()
}

// left makes a member leave. Only the network's trouble excuses one that does so
// badly, and guests have none of their own: but the broker may be away.
func (g *group) left(m *member) error {
	err := m.leave()
	if err != nil && g.w.wasAway() {
		g.w.say(g, fmt.Sprintf("while the broker was away: %v", err))
		return nil
	}
	return err
}

// accidents returns an error if a member ended that nobody told to. The mutex is
// held.
func (g *group) accidents() error {
	err := g.watched.accident()
	for _, m := range g.guests {
		err = errors.Join(err, m.accident())
	}
	return err
}

// leaveAll ends all members in good order.
func (g *group) leaveAll() (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range append(g.guests, g.watched) {
		err = errors.Join(err, m.leave())
	}
	g.guests = nil
	return err
}
