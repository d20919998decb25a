// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/plain"
)

// People say who may log in by a provider, and as what.
type People struct {
	Provider *people.Provider
	Groups   people.Groups
	Session  time.Duration // until the provider is asked again
}

// mostSaid is how much of an error is shown, which may quote all that a provider answered.
const mostSaid = 500

// BackPath is where a provider sends people back to.
const BackPath = "/login/back"

// logins are how people come from a provider.
type logins struct{ s *Server }

// flowCookie keeps a login while the browser is at the provider. It is sent where another site leads
// back here, unlike that of a session.
func (l logins) flowCookie() string { return l.s.cookie() + "-login" }

func (l logins) toProvider(w http.ResponseWriter, req *http.Request) {
	to := local(req.URL.Query().Get("to"))
	if l.s.o.People == nil {
		http.Redirect(w, req, "/login", http.StatusSeeOther)
		return
	}
	at, kept, err := l.s.o.People.Provider.Begin(req.Context(), to)
	if err != nil {
		l.s.o.Say("login: %.*v", mostSaid, err)
		l.s.show(w, req, http.StatusBadGateway, login, l.s.loginForm(to, l.s.o.People.Provider.Host()+
			" gives no login now; the log of this service says why."))
		return
	}
	l.s.sessions.End(req, l.s.cookie()) // on the way back no cookie says which session the new one is in place of
	http.SetCookie(w, &http.Cookie{Name: l.flowCookie(), Value: kept, Path: "/", HttpOnly: true, Secure: l.s.o.TLS,
		SameSite: http.SameSiteLaxMode, MaxAge: 600})
	http.Redirect(w, req, at, http.StatusSeeOther)
}

func (l logins) fromProvider(w http.ResponseWriter, req *http.Request) {
	if l.s.o.People == nil {
		http.Redirect(w, req, "/login", http.StatusSeeOther)
		return
	}
	kept := ""
	if c, err := req.Cookie(l.flowCookie()); err == nil {
		kept = c.Value
	}
	// one code, one login
	http.SetCookie(w, &http.Cookie{Name: l.flowCookie(), Path: "/", HttpOnly: true, Secure: l.s.o.TLS,
		SameSite: http.SameSiteLaxMode, MaxAge: -1})
	who, to, err := l.s.o.People.Provider.Finish(req.Context(), kept, req.URL.Query())
	if err != nil {
		if !errors.Is(err, people.ErrFlow) {
			l.s.o.Say("login: %.*v", mostSaid, err)
		}
		l.s.show(w, req, http.StatusForbidden, login, l.s.loginForm("/", plain.Line(fmt.Sprintf("%.*v", mostSaid, err))))
		return
	}
	if !l.s.limits.act("login " + who.Subject) {
		l.s.show(w, req, http.StatusTooManyRequests, login, l.s.loginForm(to, who.Name+" came too often: wait a minute."))
		return
	}
	role := l.s.o.People.Groups.Role(who.Groups)
	if role == people.Nobody {
		if !who.Told {
			l.s.o.Say("login: %s says nothing of %s's groups: the claim that --oidc-claim names is not there",
				l.s.o.People.Provider.Host(), who.Name)
		}
		l.note(req, l.nameOf(who), audit.Denied, who.Subject, strings.Join(who.Groups, ", "))
		l.s.show(w, req, http.StatusForbidden, login, l.s.loginForm(to, who.Name+" is in no group that may do anything here."))
		return
	}
	l.note(req, l.nameOf(who), audit.Login, who.Subject, strings.Join(who.Groups, ", "))
	l.s.begin(w, people.Session{Person: &people.Caller{Name: l.nameOf(who), Role: role, Subject: who.Subject}}, l.s.o.People.Session)
	// Another site led here, so the cookie of the session would not be sent by a redirect.
	l.s.show(w, req, http.StatusOK, page{Title: "Logged in", text: "back.html"}, local(to))
}

// nameOf is what a person goes by on pages and on record. Some can choose their name: the first
// parenthesis has the subject, which is nobody else's.
func (l logins) nameOf(who people.Person) string {
	name := strings.NewReplacer("(", "[", ")", "]").Replace(who.Name)
	return fmt.Sprintf("%s (%s) at %s", name, who.Subject, l.s.o.People.Provider.Host())
}

// note writes that somebody came. An instance that does not write says it in its log.
func (l logins) note(req *http.Request, who string, act audit.Act, about, said string) {
	if err := l.s.o.Hub.Act(req.Context(), who, act, about, said); err != nil {
		l.s.o.Say("login: %s %s: not in the audit log: %v", who, act, err)
	}
}

// personToken shows a person a token that ends with the session: commands act in the person's name.
func (l logins) personToken(w http.ResponseWriter, req *http.Request) {
	who := callerOf(req)
	if !who.Person {
		http.Redirect(w, req, "/", http.StatusSeeOther)
		return
	}
	if !l.s.limits.act("token " + who.Subject) {
		l.s.tooMany(w, "tokens")
		return
	}
	if l.s.failed(w, l.s.o.Hub.Act(req.Context(), who.Name, audit.Token, string(who.Role),
		"until "+who.Until.UTC().Format(time.RFC3339))) {
		return
	}
	token := l.s.sessions.Add(people.Session{Person: &who, Login: who.Login, Until: who.Until})
	l.s.show(w, req, http.StatusOK, page{Title: "Token", text: "token.html"}, map[string]any{"Token": token, "Until": who.Until})
}

// getActs answers with rows, one line of JSON each.
func (s *Server) getActs(w http.ResponseWriter, req *http.Request) {
	after, err := strconv.ParseInt(cmp.Or(req.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil || after < 0 {
		s.fail(w, http.StatusBadRequest, query.WrongQuery, "after is the number of a row")
		return
	}
	rows, err := s.o.Hub.Log().Acts(req.Context(), after, audit.AtOnce)
	if s.failed(w, err) {
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for _, r := range rows {
		if lines.Encode(r) != nil {
			return // the client is gone
		}
	}
}
