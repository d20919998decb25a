// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"sync"
)

// Take returns these where there is no place.
var (
	ErrFull   = errors.New("all places are taken")
	ErrClient = errors.New("one client has as many places as it may have")
)

// Quota bounds how many there are of something at a time, in all and for each client, so that
// one client cannot keep the others out.
type Quota struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[string]int // by client
}

// NewQuota returns a quota of so many places, of which one client may have so many.
func NewQuota(most, each int) *Quota {
	return &Quota{most: most, each: each, of: map[string]int{}}
}

// Take takes a place, which give gives back, once however often it is called.
func (q *Quota) Take(client string) (give func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.of[client] >= q.each:
		return nil, ErrClient
	case q.taken >= q.most:
		return nil, ErrFull
	}
	q.taken++
	q.of[client]++
	return sync.OnceFunc(func() { q.give(client) }), nil
}

func (q *Quota) give(client string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	if q.of[client]--; q.of[client] == 0 {
		delete(q.of, client)
	}
}

// Turns are places that are waited for, each client's one after another: however many of one
// client wait, no more of them stand in the way of others than may have a place.
type Turns struct {
	all  chan struct{}
	each int

	mu sync.Mutex
	of map[string]*queue // by client
}

// queue is one client's.
type queue struct {
	places chan struct{}
	users  int // who have a place, or wait for one
}

// NewTurns returns so many places, of which one client may have so many.
func NewTurns(most, each int) *Turns {
	return &Turns{all: make(chan struct{}, most), each: each, of: map[string]*queue{}}
}

// Take waits for a place, which give gives back; nil where ctx ended before.
func (t *Turns) Take(ctx context.Context, client string) (give func()) {
	t.mu.Lock()
	q := t.of[client]
	if q == nil {
		q = &queue{places: make(chan struct{}, t.each)}
		t.of[client] = q
	}
	q.users++
	t.mu.Unlock()
	for i, places := range []chan struct{}{q.places, t.all} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-q.places
			}
			t.leave(client, q)
			return nil
		}
	}
	return func() {
		<-t.all
		<-q.places
		t.leave(client, q)
	}
}

func (t *Turns) leave(client string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(t.of, client)
	}
}
