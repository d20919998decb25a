// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/oidctest"
	"github.com/caisson-os/caisson/test/require"
)

// peopled is a service where people log in at a real provider.
func peopled(t *testing.T) (*site, *oidctest.Provider) {
	t.Helper()
	return peopledAt(t, oidctest.Start)
}

func peopledAt(t *testing.T, start func(testing.TB, string) *oidctest.Provider) (*site, *oidctest.Provider) {
	t.Helper()
	s := newSite(t, rowsOf("n1"), true)
	at := start(t, s.url+BackPath)
	p := people.New(people.Options{Issuer: at.Issuer, Client: oidctest.Client, Secret: oidctest.Secret, Callback: s.url + BackPath, Claim: "groups"})
	s.server.o.People = &People{Provider: p, Groups: people.Groups{"ops": people.Operator, "all": people.Reader}, Session: 77 * time.Minute}
	return s, at
}

// person is a browser of somebody.
func person(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// token makes a token for who is logged in, on the page for that.
func (s *site) token(t *testing.T, who *http.Client) string {
	t.Helper()
	resp, err := who.Post(s.url+"/login/token", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(people.TokenPrefix + `[A-Z2-7]+`).FindString(string(page))
}

// TestPeopleLogIn: a person may do what a group of theirs may, for as long as a session lasts, under
// their name; one in no such group may nothing.
func TestPeopleLogIn(t *testing.T) {
	s, at := peopled(t)
	release := func(by *http.Client) int {
		t.Helper()
		resp, err := by.Post(s.url+"/v1/slots/default/n1/release", "text/plain", strings.NewReader("it burnt"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() // only its status counts
		return resp.StatusCode
	}
	for _, c := range []struct {
		groups []string
		says   string
		status int // of what takes an operator
	}{
		{nil, "test-user2 is in no group that may do anything here.", http.StatusUnauthorized},
		{[]string{"wheel"}, "in no group", http.StatusUnauthorized},
		{[]string{"all"}, "Logged in.", http.StatusForbidden},
		{[]string{"all", "ops", "wheel"}, "Logged in.", http.StatusConflict}, // nobody holds one
	} {
		at.Groups(map[string][]string{"id2": c.groups})
		who := person(t)
		before := time.Now()
		resp, page := at.LogIn(who, s.url+"/login/provider?to=/nodes")
		if !strings.Contains(page, c.says) || !strings.HasPrefix(resp.Request.URL.String(), s.url) {
			t.Errorf("%v: at %s: %s", c.groups, resp.Request.URL, page)
		}
		if status := release(who); status != c.status {
			t.Errorf("%v: release: %d, not %d", c.groups, status, c.status)
		}
		if c.status == http.StatusUnauthorized {
			continue
		}
		s.lasts(resp, before, 77*time.Minute)
		if !strings.Contains(page, `content="0;url=/nodes"`) {
			t.Errorf("%v is not led on to /nodes: %s", c.groups, page)
		}
		if _, page := s.browse(who, "/nodes"); !strings.Contains(page, "Log out test-user2 (id2) at 127.0.0.1") {
			t.Errorf("%v: %s", c.groups, page)
		}
		s.sessionsEnd()
		if status := release(who); status != http.StatusUnauthorized {
			t.Errorf("%v: release after the session: %d", c.groups, status)
		}
	}
}

// TestPeopleAreNotFooled: a code without the browser that asked for it opens no session, nobody is led
// elsewhere, and a provider that is away is said.
func TestPeopleAreNotFooled(t *testing.T) {
	s, at := peopled(t)
	at.Groups(map[string][]string{"id2": {"ops"}})
	thief := person(t)
	if resp, page := s.browse(thief, BackPath+"?code=x&state=y"); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, "did not begin in this browser") {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
	if _, page := at.LogIn(person(t), s.url+"/login/provider?to=//evil.example"); !strings.Contains(page, `content="0;url=/"`) {
		t.Errorf("led elsewhere: %s", page)
	}
	if _, page := s.browse(person(t), "/login"); !strings.Contains(page, "Log in at 127.0.0.1") || !strings.Contains(page, "Token") {
		t.Errorf("the form: %s", page)
	}
	at.Stop()
	s.server.o.People.Provider = people.New(people.Options{Issuer: at.Issuer, Client: oidctest.Client, Callback: s.url + BackPath, Claim: "groups"})
	if resp, page := s.browse(person(t), "/login/provider"); resp.StatusCode != http.StatusBadGateway || !strings.Contains(page, "gives no login now") {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
}

// TestPeopleAreOnRecord: what a person did is in the log, under their name, also by the token that
// ends with their session; a changed row of the database breaks the chain.
func TestPeopleAreOnRecord(t *testing.T) {
	s, at := peopled(t)
	key := newKey(t)
	at.Groups(map[string][]string{"id2": {"ops", "all"}})
	who := person(t)
	at.LogIn(who, s.url+"/login/provider")
	token := s.token(t, who)
	if status, text := s.ask("POST", "/v1/nodes/n1/accept", []byte(sign.VerifierOf(key).ID()), "Authorization", "Bearer "+token); status != http.StatusNoContent {
		t.Fatal(status, text)
	}
	if status, text := s.ask("POST", "/login/token", nil, "Authorization", s.bearer(people.Operator)); status == http.StatusOK || strings.Contains(text, people.TokenPrefix) {
		t.Errorf("a token is given a person's: %d %s", status, text)
	}
	at.Groups(nil)
	at.LogIn(person(t), s.url+"/login/provider")
	log := func() []audit.Row {
		t.Helper()
		_, text := s.ask("GET", "/v1/acts", nil, "Authorization", s.bearer(people.Reader))
		rows, err := audit.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	var got []string
	rows := log()
	for _, r := range rows {
		got = append(got, string(r.Act)+" "+r.Who+" "+r.About)
	}
	const eve = " test-user2 (id2) at 127.0.0.1:"
	for i, want := range []string{"login" + eve, "token" + eve, "accept" + eve, "denied" + eve} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("row %d is not %q: %q", i+1, want, got)
		}
	}
	if err := audit.Check(audit.Row{}, rows); err != nil || rows[2].About != "n1" || rows[2].Said != sign.VerifierOf(key).ID() {
		t.Errorf("%+v, %v", rows, err)
	}
	if status, _ := s.ask("GET", "/v1/acts?after=x", nil, "Authorization", s.bearer(people.Reader)); status != http.StatusBadRequest {
		t.Errorf("a wrong number: %d", status)
	}
	if status, _ := s.ask("GET", "/v1/acts", nil, "Authorization", s.bearer(people.Reporter)); status != http.StatusForbidden {
		t.Errorf("a reporter reads: %d", status)
	}
	out := httptest.NewRequest("POST", "/logout", nil)
	out.AddCookie(&http.Cookie{Name: "x", Value: token})
	s.server.sessions.End(out, "x")
	if status, _ := s.ask("POST", "/v1/nodes/n1/accept", []byte(sign.VerifierOf(key).ID()), "Authorization", "Bearer "+token); status != http.StatusUnauthorized {
		t.Errorf("after the session: %d", status)
	}
}

// TestLoginsByTokenAreOnRecord: who shows a token on the page is in the log with its name and the address,
// and so is one that may not read; a token that nobody has writes no row, nor does one without end.
func TestLoginsByTokenAreOnRecord(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	login := func(token string) int {
		t.Helper()
		resp, err := person(t).PostForm(s.url+"/login", url.Values{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() // only its status counts
		return resp.StatusCode
	}
	for token, want := range map[string]int{
		s.tokens[people.Operator]: http.StatusOK, s.tokens[people.Reporter]: http.StatusForbidden, people.TokenPrefix + "X": http.StatusForbidden,
	} {
		if is := login(token); is != want {
			t.Errorf("%s: %d, not %d", token, is, want)
		}
	}
	var got []string
	for _, r := range s.record() {
		got = append(got, strings.Join([]string{string(r.Act), r.Who, r.About, r.Said}, " "))
	}
	slices.Sort(got)
	if want := []string{"denied a-reporter reporter from 127.0.0.1", "login a-operator operator from 127.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("on record is %q, not %q", got, want)
	}
	last := 0
	for range 110 {
		last = login(s.tokens[people.Operator])
	}
	if n := len(s.record()); n != 101 || last != http.StatusTooManyRequests {
		t.Errorf("111 logins: %d rows, the last answer is %d", n, last)
	}
}

// record returns the rows of the audit log.
func (s *site) record() []audit.Row {
	s.Helper()
	all, err := s.server.o.Hub.Log().Acts(s.Context(), 0, 1000)
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// TestATokenEndsWithItsLogin: after a logout, and after another login in that browser, no token of the
// login opens anything, nor does a stream of events go on; by none of them is another one made.
func TestATokenEndsWithItsLogin(t *testing.T) {
	s, at := peopled(t)
	at.Groups(map[string][]string{"id2": {"ops"}})
	first, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for name, ends := range map[string]func(*http.Client){
		"logout": func(who *http.Client) {
			resp, err := who.Post(s.url+"/logout", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // only that it was done counts
		},
		"another login": func(who *http.Client) { at.LogIn(who, s.url+"/login/provider") },
		"a token's login": func(who *http.Client) {
			resp, err := who.PostForm(s.url+"/login", url.Values{"token": {s.tokens[people.Reader]}})
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // only that it was done counts
		},
	} {
		who := person(t)
		at.LogIn(who, s.url+"/login/provider")
		cookie, token := who.Jar.Cookies(first)[0].String(), s.token(t, who)
		asBearer := []string{"Authorization", "Bearer " + token}
		asCookie := []string{"Cookie", s.server.cookie() + "=" + token}
		for _, by := range [][]string{asBearer, asCookie} {
			if status, _ := s.ask("GET", "/v1/summary", nil, by...); status != http.StatusOK {
				t.Errorf("%s: before by %s: %d", name, by[0], status)
			}
			if _, text := s.ask("POST", "/login/token", nil, by...); strings.Contains(text, people.TokenPrefix) {
				t.Errorf("%s: a token gives another one by %s", name, by[0])
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(asBearer[0], asBearer[1])
		events, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		ends(who)
		for _, by := range [][]string{asBearer, asCookie, {"Cookie", cookie}} {
			if status, _ := s.ask("GET", "/v1/summary", nil, by...); status != http.StatusUnauthorized {
				t.Errorf("after %s, by %s: %d", name, by[0], status)
			}
		}
		key := sign.VerifierOf(newKey(t)).ID() // a change, after which a stream says that there is one
		if status, text := s.ask("POST", "/v1/nodes/n1/accept", []byte(key), "Authorization", s.bearer(people.Operator)); status != http.StatusNoContent {
			t.Fatal(status, text)
		}
		if text, err := io.ReadAll(events.Body); err != nil || strings.Contains(string(text), "change") {
			t.Errorf("after %s a stream has %q, %v", name, text, err)
		}
		_ = events.Body.Close() // only read
		cancel()
	}
}

// TestNobodyIsOnRecordAsAnother: whatever name a person takes, the first parenthesis of a row has their subject.
func TestNobodyIsOnRecordAsAnother(t *testing.T) {
	s, _ := peopled(t)
	for name, want := range map[string]string{
		"eve":                            "eve (id2) at ",
		"eve (id1)":                      "eve [id1] (id2) at ",
		"eve (id1) at id.example.org ((": "eve [id1] at id.example.org [[ (id2) at ",
	} {
		got := logins{s.server}.nameOf(people.Person{Name: name, Subject: "id2"})
		if got != want+s.server.o.People.Provider.Host() {
			t.Errorf("%q is on record as %q", name, got)
		}
	}
}

// TestSessionsAreOneInstances: a login at one instance, a cookie or a person's token, is nothing at
// another one of the same fleet, with the same tokens, even where both have one database.
func TestSessionsAreOneInstances(t *testing.T) {
	s, at := peopled(t)
	at.Groups(map[string][]string{"id2": {"ops"}})
	who := person(t)
	at.LogIn(who, s.url+"/login/provider")
	token := s.token(t, who)
	second, err := New(t.Context(), s.server.o)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(second)
	defer other.Close()
	first, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	status := func(at string, change func(*http.Request)) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/v1/summary", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() // only its status counts
		return resp.StatusCode
	}
	for name, change := range map[string]func(*http.Request){
		"cookie": func(req *http.Request) {
			for _, c := range who.Jar.Cookies(first) {
				req.AddCookie(c)
			}
		},
		"token": func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+token) },
	} {
		if here, there := status(s.url, change), status(other.URL, change); here != http.StatusOK || there != http.StatusUnauthorized {
			t.Errorf("%s: %d where it is from, %d elsewhere", name, here, there)
		}
	}
	// The secrets of webhooks and of the client at the provider are for others, and nothing here.
	for _, secret := range []string{oidctest.Secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if status := status(s.url, func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+secret) }); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", secret, status)
		}
	}
}

// lasts wants the session that an answer begins to be of a length, in the browser and here.
func (s *site) lasts(resp *http.Response, before time.Time, length time.Duration) {
	s.Helper()
	for _, c := range resp.Cookies() {
		if c.Name != s.server.cookie() {
			continue
		}
		who := s.server.sessions.Find(c.Value, s.server.o.Tokens)
		if c.MaxAge != int(length.Seconds()) || who.Until.Before(before.Add(length)) || who.Until.After(time.Now().Add(length)) {
			s.Errorf("a session of %d seconds, until %v", c.MaxAge, who.Until)
		}
		return
	}
	s.Error("no session begins")
}

// sessionsEnd ends all sessions, as those of a service that starts again.
func (s *site) sessionsEnd() { s.server.sessions = people.NewSessions() }

// browse gets a page of the service.
func (s *site) browse(by *http.Client, path string) (*http.Response, string) {
	s.Helper()
	req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	resp, err := by.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, string(text)
}

// TestPeopleInABrowser: a real browser keeps its cookies on the way there and back, and ends what it began.
func TestPeopleInABrowser(t *testing.T) {
	require.Slow(t)
	ctx := browser(t)
	s, at := peopled(t)
	at.Groups(map[string][]string{"id2": {"ops"}})
	var head string
	err := chromedp.Run(ctx,
		chromedp.Navigate(s.url+"/nodes"), arrive("/login?to="),
		chromedp.Click("a.button"), arrive("/login/username"),
		chromedp.SendKeys("#username", "test-user2"), chromedp.SendKeys("#password", oidctest.Password), chromedp.Submit("#password"), arrive(s.url+"/nodes"),
		chromedp.Text("header", &head))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(head, "Log out test-user2") {
		t.Errorf("the head says %q", head)
	}
	keep(t, ctx, "people")
	if err := chromedp.Run(ctx, chromedp.Click(`form[action="/logout"] button`), arrive("/login"), chromedp.Navigate(s.url+"/nodes"), arrive("/login?to=")); err != nil {
		t.Errorf("after the logout: %v", err)
	}
}

// TestSessionsOfOne: who begins sessions, or makes tokens, without end loses the oldest of their own,
// not the login that a token ends with, and nobody else's.
func TestSessionsOfOne(t *testing.T) {
	const sessionsOf = 50 // one token or person
	s, at := peopled(t)
	counts := func(headers ...string) bool {
		t.Helper()
		status, _ := s.ask("GET", "/v1/summary", nil, headers...)
		return status == http.StatusOK
	}
	session := func(role people.Role) []string {
		t.Helper()
		who := person(t)
		resp, err := who.PostForm(s.url+"/login", url.Values{"token": {s.tokens[role]}})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only its cookie counts
		return []string{"Cookie", who.Jar.Cookies(resp.Request.URL)[0].String()}
	}
	others := [][]string{session(people.Operator)}
	at.Groups(map[string][]string{"id2": {"ops"}})
	who := person(t)
	resp, _ := at.LogIn(who, s.url+"/login/provider")
	cookie := []string{"Cookie", who.Jar.Cookies(resp.Request.URL)[0].String()}
	for name, begin := range map[string]func() []string{
		"sessions": func() []string { return session(people.Reader) },
		"tokens":   func() []string { return []string{"Authorization", "Bearer " + s.token(t, who)} },
	} {
		var own [][]string
		for range sessionsOf + 5 {
			own = append(own, begin())
		}
		if counts(own[0]...) || counts(own[4]...) {
			t.Errorf("%s: the oldest counts beside %d newer ones", name, sessionsOf)
		}
		for i, one := range own[6:] { // a person has the session beside the tokens
			if !counts(one...) {
				t.Errorf("%s: of %d number %d does not count", name, len(own), i+7)
			}
		}
		others = append(others, own[len(own)-1])
	}
	for i, one := range append(others, cookie) {
		if !counts(one...) {
			t.Errorf("session %d ends by those of somebody else, or the login by its tokens", i+1)
		}
	}
}

// TestRowsOfAPerson: who comes from the provider, or makes tokens, without end writes no more rows of the
// audit log than one a minute after the first hundred; another person comes in meanwhile.
func TestRowsOfAPerson(t *testing.T) {
	s, at := peopled(t)
	now := time.Now()
	s.server.limits.now = func() time.Time { return now }
	rows := func() int { return len(s.record()) }
	at.Groups(map[string][]string{"id2": {"ops"}})
	who := person(t)
	at.LogIn(who, s.url+"/login/provider")
	for range 130 {
		s.token(t, who)
	}
	if n := rows(); n != 101 { // the login is counted apart
		t.Errorf("a login and 130 tokens wrote %d rows", n)
	}
	at.Groups(nil)
	last := http.StatusOK
	for range 110 {
		resp, _ := at.LogIn(person(t), s.url+"/login/provider")
		last = resp.StatusCode
	}
	if n := rows(); n != 200 || last != http.StatusTooManyRequests {
		t.Errorf("a login and 110 refusals: %d rows, the last answer is %d", n, last)
	}
	now = now.Add(time.Minute)
	if resp, _ := at.LogIn(person(t), s.url+"/login/provider"); rows() != 201 || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a minute later: %d rows, %d", rows(), resp.StatusCode)
	}
}
