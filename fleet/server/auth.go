// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// cookie is the name of a session's cookie. By TLS it is one that no other host, and no page
// without TLS, can set: see __Host- in RFC 6265bis. A browser takes none of that name
// without TLS, as on a loopback.
func (s *Server) cookie() string {
	if s.o.TLS {
		return "__Host-caisson"
	}
	return "caisson"
}

// caller finds out who asks: by the header, or by the cookie of a browser.
func (s *Server) caller(req *http.Request) people.Caller {
	if s.o.Tokens == nil {
		return people.Caller{Name: "everybody"}
	}
	if scheme, token, ok := strings.Cut(req.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		if who := s.o.Tokens.Find(token); who.Role != people.Nobody {
			return who
		}
		return s.sessions.Find(token, s.o.Tokens) // that of a person
	}
	if c, err := req.Cookie(s.cookie()); err == nil {
		return s.sessions.Find(c.Value, s.o.Tokens)
	}
	return people.Caller{}
}

// need lets only those through who have a role. Where a service has no tokens, all may
// read and report.
func (s *Server) need(role people.Role, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		who := s.caller(req)
		if who.Role != people.Nobody {
			httpserver.Knows(req)
		}
		allowed := who.Role.May(role)
		switch {
		case s.o.Tokens == nil:
			allowed = role != people.Operator && role != people.Drain
		case role == people.Reporter && s.o.Tokens.OpenToNodes():
			allowed = true // a report is signed; a token keeps strangers from asking at all
		}
		switch {
		case allowed:
			next(w, req.WithContext(context.WithValue(req.Context(), callerKey{}, who)))
		case who.Role == people.Nobody && req.Header.Get("Authorization") != "" && !s.limits.guess(client(req)):
			s.fail(w, http.StatusTooManyRequests, "rate", "too many wrong tokens from this address")
		case wantsPage(req) && who.Role == people.Nobody:
			http.Redirect(w, req, "/login?to="+url.QueryEscape(req.URL.RequestURI()), http.StatusSeeOther)
		case who.Role == people.Nobody && s.o.Tokens == nil:
			s.fail(w, http.StatusUnauthorized, query.NoTokens, "this needs a token of role %s, and the service was started without --tokens", role)
		case who.Role == people.Nobody && req.Header.Get("Authorization") != "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="caisson"`)
			s.fail(w, http.StatusUnauthorized, "token", "this needs a token of role %s, and the one given is not known, or its login has ended",
				role)
		case who.Role == people.Nobody:
			w.Header().Set("WWW-Authenticate", `Bearer realm="caisson"`)
			s.fail(w, http.StatusUnauthorized, "token", "this needs a token of role %s", role)
		default:
			s.fail(w, http.StatusForbidden, "role", "this needs a token of role %s; the one given is of role %s", role, who.Role)
		}
	})
}

type callerKey struct{}

func callerOf(req *http.Request) people.Caller {
	who, _ := req.Context().Value(callerKey{}).(people.Caller) // need puts it there
	return who
}

func wantsPage(req *http.Request) bool {
	return req.Method == http.MethodGet && strings.Contains(req.Header.Get("Accept"), "text/html")
}

// hostAllowed reports whether a name is one of this service's. On the loopback, too: a
// page of the web can have a name that leads there.
func (s *Server) hostAllowed(host string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return false // a page shows it within commands for a shell
		}
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(s.o.Hosts, func(own string) bool {
		return strings.EqualFold(own, host) || strings.EqualFold(own, name) || strings.EqualFold(own, "["+name+"]")
	})
}

// tokenInURL reports whether an address holds what looks like a token.
func tokenInURL(req *http.Request) bool {
	for name, values := range req.URL.Query() {
		switch strings.ToLower(name) {
		case "token", "access_token", "auth", "authorization", "bearer", "api_key", "apikey":
			return true
		}
		if slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, people.TokenPrefix) }) {
			return true
		}
	}
	return strings.Contains(req.URL.Path, "/"+people.TokenPrefix)
}

func address(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// client is by what a request is counted.
func client(req *http.Request) string { return httpserver.Client(address(req)) }

// sessionFor is how long a token is not asked for again.
const sessionFor = 12 * time.Hour

// begin gives a browser a session of some length.
func (s *Server) begin(w http.ResponseWriter, one people.Session, length time.Duration) {
	one.Until = time.Now().Add(length)
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.sessions.Add(one), Path: "/", HttpOnly: true,
		Secure: s.o.TLS, SameSite: http.SameSiteStrictMode, MaxAge: int(length.Seconds())})
}

func (s *Server) login(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, 4<<10)
	token := strings.TrimSpace(req.PostFormValue("token"))
	if s.o.Tokens == nil {
		http.Redirect(w, req, "/", http.StatusSeeOther)
		return
	}
	who := s.o.Tokens.Find(token)
	may := who.Role.May(people.Reader)
	if !may && token != "" && !s.limits.guess(client(req)) {
		s.fail(w, http.StatusTooManyRequests, "rate", "too many wrong tokens from this address")
		return
	}
	if who.Role != people.Nobody { // what nobody has is nobody's act
		if !s.limits.act("shown " + who.Name) {
			s.show(w, req, http.StatusTooManyRequests, login, s.loginForm(req.PostFormValue("to"), "This token came too often: wait a minute."))
			return
		}
		act := audit.Denied
		if may {
			act = audit.Login
		}
		logins{s}.note(req, who.Name, act, string(who.Role), "from "+address(req))
	}
	if !may {
		s.show(w, req, http.StatusForbidden, login, s.loginForm(req.PostFormValue("to"), "This token is not known here, or is none for readers."))
		return
	}
	s.sessions.End(req, s.cookie())
	s.begin(w, people.Session{Token: sha256.Sum256([]byte(token))}, sessionFor)
	http.Redirect(w, req, local(req.PostFormValue("to")), http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, req *http.Request) {
	s.sessions.End(req, s.cookie())
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Path: "/", HttpOnly: true, Secure: s.o.TLS,
		SameSite: http.SameSiteStrictMode, MaxAge: -1})
	http.Redirect(w, req, "/login", http.StatusSeeOther)
}

// local is an address of this service's own: who logs in is not led elsewhere.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) {
		return "/"
	}
	return to
}

// limits bound how often an address may guess, and report. The names of buckets are short.
type limits struct {
	mu   sync.Mutex
	most int // buckets
	all  map[string]*rate.Limiter
	now  func() time.Time
}

func newLimits() *limits {
	return &limits{most: 100_000, all: map[string]*rate.Limiter{}, now: time.Now}
}

// take takes one from a bucket that holds most and gains so much a second.
func (l *limits) take(name string, most int, gains rate.Limit) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all[name]
	if b == nil {
		if len(l.all) >= l.most {
			for other := range l.all { // who has very many addresses must not keep the others out
				delete(l.all, other)
				break
			}
		}
		b = rate.NewLimiter(gains, most)
		l.all[name] = b
	}
	return b.AllowN(l.now(), 1)
}

// guess allows an address ten wrong tokens, and then one every six seconds.
func (l *limits) guess(address string) bool { return l.take("guess "+address, 10, 1.0/6) }

// hint allows an address twenty hints at once, and then one every five seconds; and all
// addresses together what a large fleet may have to say.
func (l *limits) hint(address string) bool {
	return l.take("hint "+address, 20, 1.0/5) && l.take("hints", 1000, 20)
}

// slot allows an address as many requests for slots as its nodes make that wait for one:
// each is verified, and what it proves is written.
func (l *limits) slot(address string) bool { return l.take("slot "+address, 1000, 50) }

// act allows a person, or a token, a hundred logins or tokens at once, and then one a minute: the audit
// log keeps each for ever.
func (l *limits) act(who string) bool { return l.take("act "+who[:min(len(who), 300)], 100, 1.0/60) }

// arrival allows an address as many reports as all nodes behind a proxy have to send,
// by any sender: nothing in one is known to be true before it is verified.
func (l *limits) arrival(address string) bool { return l.take("report "+address, 20_000, 500) }

// report allows the holder of a node's key, which signed, a full spool at once, and then
// one report a second, from wherever. A key that is nobody's yet can be made at any time:
// such are counted together, and by the node that they say to be of.
func (l *limits) report(address, owner, claimed string) bool {
	if owner != "" {
		return l.take("node "+owner, 80, 1)
	}
	return l.take("new "+address+" "+claimed[:min(len(claimed), 64)], 20, 1.0/15) && l.take("strangers "+address, strangers, strangers/300)
}

// strangers is how many reports by new keys one address may send at once: all nodes of a
// hall are new at first, or after a power cut, and may come from one.
const strangers = 12_000
