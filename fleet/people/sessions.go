// SPDX-License-Identifier: Apache-2.0

package people

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

// Sessions are browsers that have shown a token, or whose person a provider has named. They end
// with the service.
type Sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]Session
}

// NewSessions returns sessions of nobody yet.
func NewSessions() *Sessions { return &Sessions{all: map[[sha256.Size]byte]Session{}} }

// Session is one of them.
type Session struct {
	Token  [sha256.Size]byte // of a token, which may be taken away meanwhile
	Person *Caller           // in place of a token
	Login  [sha256.Size]byte // of a person's token: the session that it ends with; zero for a session
	Until  time.Time
	began  time.Time
}

const (
	maxSessions = 10_000
	sessionsOf  = 50 // one token or person, with the tokens of a person
)

// shares reports whether two sessions are of one token or person.
func (s Session) shares(other Session) bool {
	if s.Person == nil || other.Person == nil {
		return s.Person == other.Person && s.Token == other.Token
	}
	return s.Person.Name == other.Person.Name
}

// Add returns the value of a new cookie, or of a person's token. Who has very many loses the oldest of
// their own, and never the session that a token ends with.
func (s *Sessions) Add(one Session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.began = time.Now()
	own, oldest, first := 0, [sha256.Size]byte{}, one.began
	for id, other := range s.all {
		_, lives := s.all[other.Login]
		switch {
		case one.began.After(other.Until) || len(s.all) >= maxSessions && id != one.Login || other.Login != [sha256.Size]byte{} && !lives:
			delete(s.all, id)
		case one.shares(other):
			if own++; id != one.Login && other.began.Before(first) {
				oldest, first = id, other.began
			}
		}
	}
	if own >= sessionsOf {
		delete(s.all, oldest)
	}
	value := TokenPrefix + rand.Text()
	s.all[sha256.Sum256([]byte(value))] = one
	return value
}

// Find returns who has a cookie, or the token of a person.
func (s *Sessions) Find(value string, tokens *Tokens) Caller {
	id := sha256.Sum256([]byte(value))
	s.mu.Lock()
	one, ok := s.all[id]
	itself := one.Login == [sha256.Size]byte{}
	if !itself {
		_, ok = s.all[one.Login]
	}
	s.mu.Unlock()
	switch {
	case !ok || time.Now().After(one.Until):
		return Caller{}
	case one.Person != nil:
		who := *one.Person
		who.Person, who.Login, who.Until = itself, id, one.Until
		return who
	}
	return tokens.findSum(one.Token)
}

// End ends the session that a browser has by a cookie.
func (s *Sessions) End(req *http.Request, cookie string) {
	if c, err := req.Cookie(cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, sha256.Sum256([]byte(c.Value)))
	}
}
