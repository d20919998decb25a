// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// places counts the places that connections take: so many in all, so many for one address, and,
// where clients can show who they are, so many for strangers, alone and as one network. At a limit
// the connection that waits longest for a request ends, and the new one is taken: who asks
// something is served before who asked something once.
type places struct {
	all, strangers *Quota // by address; by network

	mu sync.Mutex
	// connections that wait for a request, longest first: of everybody, of strangers, of an address,
	// of a network
	waiting map[string]*list.List
	known   map[string]time.Time // addresses that have shown who they are, and when
}

const (
	everybody     = "*"
	anyStranger   = "?"
	knownFor      = 24 * time.Hour
	maxKnown      = 100_000
	networkShares = 4 // a network of strangers has one of so many parts of what strangers have
)

func newPlaces(o Options) *places {
	p := &places{all: NewQuota(o.Conns, o.PerClient), waiting: map[string]*list.List{}, known: map[string]time.Time{}}
	strangers, network := o.Conns, o.Conns
	if o.Knows {
		strangers = max(1, o.Conns-o.Conns/4)
		network = max(o.PerClient, strangers/networkShares)
	}
	p.strangers = NewQuota(strangers, network)
	return p
}

// take takes a place for a connection, and ends another one for it where it has to. A
// stranger needs one of the strangers' first: for one who cannot stay nobody else ends.
func (p *places) take(c *conn) error {
	if c.stranger = !p.knows(c.client); c.stranger {
		if err := p.from(c, p.strangers, c.network, "net "+c.network, anyStranger); err != nil {
			return err
		}
	}
	return p.from(c, p.all, c.client, c.client, anyStranger, everybody)
}

// from takes a place of a quota for who takes it there; one and all are whose connections
// may end for it, see [places.end].
func (p *places) from(c *conn, q *Quota, who, one string, all ...string) error {
	for {
		give, err := q.Take(who)
		if err == nil {
			c.give = append(c.give, give)
			return nil
		}
		if !p.end(err, one, all...) {
			c.giveAll()
			return err
		}
	}
}

// end ends the connection that waits longest: of the one who has too many, or else, in
// this order, of those of whom there are too many.
func (p *places) end(full error, one string, all ...string) bool {
	from := all
	if errors.Is(full, ErrClient) {
		from = []string{one}
	}
	p.mu.Lock()
	var victim *conn
	for _, name := range from {
		if l := p.waiting[name]; l != nil {
			victim = l.Front().Value.(*conn)
			break
		}
	}
	p.mu.Unlock()
	if victim == nil {
		return false
	}
	_ = victim.Close() // nobody waits for what it says
	return true
}

// waits notes that a connection begins to wait for a request, or ends that.
func (p *places) waits(c *conn, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, at := range c.at {
		l := p.waiting[name]
		if l.Remove(at); l.Len() == 0 {
			delete(p.waiting, name)
		}
	}
	c.at = nil
	if !now || c.closed {
		return
	}
	c.at = map[string]*list.Element{}
	names := []string{everybody, c.client}
	if c.stranger {
		names = append(names, anyStranger, "net "+c.network)
	}
	for _, name := range names {
		if p.waiting[name] == nil {
			p.waiting[name] = list.New()
		}
		c.at[name] = p.waiting[name].PushBack(c)
	}
}

func (p *places) knows(client string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.known[client]
	return ok && time.Since(at) < knownFor
}

// know remembers that a connection's client has shown who it is.
func (p *places) know(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.known[c.client]; !ok && len(p.known) >= maxKnown {
		for other := range p.known { // it shows it again
			delete(p.known, other)
			break
		}
	}
	p.known[c.client] = time.Now()
}

type connKey struct{}

// Knows notes that who makes a request has shown a secret: a token, a password, a
// node's key. Its address keeps a place among strangers, whatever they do.
func Knows(req *http.Request) {
	if c, ok := req.Context().Value(connKey{}).(*conn); ok {
		c.places.know(c)
	}
}

// Client is by what the holder of an address is counted: of IPv6 its network of 64 bits,
// in which one machine can have as many addresses as it likes.
func Client(address string) string { return prefix(address, 64) }

// network is by what strangers are counted together: of IPv6 the 48 bits that one
// customer of a provider may have.
func network(address string) string { return prefix(address, 48) }

func prefix(address string, bits int) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Unmap().Is4() {
		return address
	}
	return netip.PrefixFrom(a.WithZone(""), bits).Masked().String()
}

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
