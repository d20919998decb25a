// SPDX-License-Identifier: Apache-2.0

// Package quota bounds how many there are of something at a time, in all and for each
// client, so that one client cannot keep the others out.
package quota

import (
	"errors"
	"sync"
)

// Take returns these where there is no place.
var (
	ErrFull   = errors.New("all places are taken")
	ErrClient = errors.New("one client has as many places as it may have")
)

// Quota is a number of places.
type Quota struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[string]int // by client
}

// New returns a quota of so many places, of which one client may have so many.
func New(most, each int) *Quota {
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
