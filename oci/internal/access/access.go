// SPDX-License-Identifier: Apache-2.0

// Package access logs in to one registry: basic, or a bearer token from the realm that the
// registry names. Requests to any other host or port, as a redirect to a content network makes
// them, go out without credentials, and what such a host asks for is not answered.
//
// Nodes and publishers use it through oci/pull, so there is one place where a scheme is known. It
// imports the standard library, oci, oci/internal/strict, internal/check and internal/ownfiles.
package access

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// Login holds the credentials for one registry. The zero value is anonymous.
type Login struct {
	User, Password string
	Token          string // identity token: used as a refresh token
}

// Logins finds the credentials for host[:port], the zero Login where there are none.
type Logins func(ctx context.Context, host string) (Login, error)

// InFile returns the credentials for host[:port] in a file, none where there is no file; a host
// that the file does not name gets none. Helper programs are never run.
func InFile(name, host string) (Login, error) {
	if name == "" {
		return Login{}, nil
	}
	data, err := ownfiles.ReadSecret(name)
	if err != nil {
		return Login{}, fmt.Errorf("credentials: %w", err)
	}
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Login{}, fmt.Errorf("credentials: %s: %w", name, err)
	}
	entry, ok := file.Auths[host]
	if !ok {
		return Login{}, nil
	}
	l := Login{User: entry.Username, Password: entry.Password, Token: entry.IdentityToken}
	if entry.Auth != "" {
		pair, err := base64.StdEncoding.DecodeString(entry.Auth)
		user, password, found := strings.Cut(string(pair), ":")
		if err != nil || !found {
			return Login{}, fmt.Errorf("credentials: %s: the auth of %s is not base64 of user:password", name, host)
		}
		l.User, l.Password = user, password
	}
	return l, nil
}

// Transport is a transport that logs in to one registry.
type Transport struct {
	base     http.RoundTripper
	scheme   string
	host     string // host[:port] as in the reference
	logins   Logins
	patience time.Duration // for one answer of a token server
	rules    rules

	mu     sync.Mutex
	login  Login // found when the registry asks for one
	basic  bool
	tokens map[string]string // by scope
}

// Over returns a transport over base to the registry at host[:port], which is reached by a scheme.
// Patience is how long a token server has for an answer.
func Over(base http.RoundTripper, scheme, host string, logins Logins, patience time.Duration) *Transport {
	return &Transport{base: base, scheme: scheme, host: host, logins: logins, patience: patience, rules: whole}
}

// StatusError is an HTTP status that says neither yes nor "not found".
type StatusError struct {
	Status int
	What   string
	Text   string
}

func (e *StatusError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: the registry answers %d %s: %.200s", e.What, e.Status, http.StatusText(e.Status), e.Text), ": ")
}

// Is reports that a registry has answered.
func (e *StatusError) Is(target error) bool { return target == oci.ErrAnswered }

// Hint helps with the statuses that an operator can do something about.
func (e *StatusError) Hint() string {
	switch e.Status {
	case http.StatusBadRequest:
		if strings.Contains(e.Text, "HTTP request to an HTTPS server") {
			return "the registry speaks TLS: leave out --plain-http, and name its authority with --ca on the loopback"
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the registry needs other credentials: 'caisson login' stores them; on a node they are in registry/auth.json of its state directory"
	case http.StatusTooManyRequests:
		return "the registry limits requests: try again later, or add a mirror"
	}
	return ""
}

// rules say where credentials may go. Tests take some out.
type rules struct {
	receiver check.List[meeting]
	realm    check.List[meeting]
	redirect check.List[meeting]
}

// meeting is a registry, as it was named by the operator, and a URL that is about
// to get credentials.
type meeting struct {
	scheme, host string
	to           *url.URL
}

var whole = rules{
	receiver: check.List[meeting]{
		{Name: "same scheme", OK: func(m meeting) error { return unless(m.scheme == m.to.Scheme, "another scheme") }},
		{Name: "same host and port", OK: func(m meeting) error { return unless(m.host == m.to.Host, "another host or port") }},
	},
	realm: check.List[meeting]{
		{Name: "realm is a URL", OK: func(m meeting) error {
			return unless(m.to.Host != "" && (m.to.Scheme == "https" || m.to.Scheme == "http"), "the realm is not a URL")
		}},
		{Name: "realm stays TLS", OK: func(m meeting) error {
			return unless(m.scheme != "https" || m.to.Scheme == "https", "the realm is not https: credentials stay here")
		}},
	},
	redirect: check.List[meeting]{
		{Name: "token request is not redirected", OK: func(m meeting) error {
			return fmt.Errorf("the token server redirects to %.80q: credentials stay here", m.to.Host)
		}},
	},
}

func unless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

// RoundTrip sends req, and where the registry wants credentials and the body can be had
// again, once more for each challenge that it offers, until one is accepted.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.rules.receiver.Run(meeting{t.scheme, t.host, req.URL}) != nil {
		return t.base.RoundTrip(bare(req))
	}
	scope := scopeOf(req)
	resp, err := t.base.RoundTrip(t.with(req, scope))
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	refused := func(text string) error {
		return &StatusError{Status: resp.StatusCode, What: req.URL.Path, Text: text}
	}
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return resp, nil // the answer says what is wrong
	}
	offered := parseChallenges(resp.Header.Values("WWW-Authenticate"))
	if len(offered) == 0 {
		strict.Drain(resp)
		return nil, refused("unknown challenge")
	}
	login, err := t.logins(req.Context(), t.host)
	if err != nil {
		strict.Drain(resp)
		return nil, err
	}
	var failed []error
	tried := false
	for _, c := range offered {
		token := ""
		switch {
		case c.scheme == "bearer":
			if token, err = t.fetchToken(req.Context(), login, c.params, scope); err != nil {
				failed = append(failed, fmt.Errorf("token for %q: %w", scope, err))
				continue
			}
		case login.User == "":
			continue
		}
		again := req.Clone(req.Context())
		if req.GetBody != nil {
			if again.Body, err = req.GetBody(); err != nil {
				return resp, nil // as above
			}
		}
		strict.Drain(resp)
		tried = true
		authorize(again, login, token)
		if resp, err = t.base.RoundTrip(again); err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized {
			t.keep(login, scope, token)
			return resp, nil
		}
	}
	if tried && failed == nil {
		return resp, nil
	}
	strict.Drain(resp)
	if failed == nil {
		return nil, refused("no credentials for " + t.host)
	}
	return nil, errors.Join(failed...)
}

// bare returns req without credentials.
func bare(req *http.Request) *http.Request {
	if req.Header.Get("Authorization") == "" {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Del("Authorization")
	return req
}

// with returns a copy of req that carries what was negotiated for scope.
func (t *Transport) with(req *http.Request, scope string) *http.Request {
	req = req.Clone(req.Context())
	t.mu.Lock()
	defer t.mu.Unlock()
	if token := t.tokens[scope]; token != "" || t.basic {
		authorize(req, t.login, token)
	}
	return req
}

// authorize adds a token, or without one a name and password.
func authorize(req *http.Request, login Login, token string) {
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	} else {
		req.SetBasicAuth(login.User, login.Password)
	}
}

// keep notes what the registry has accepted: a token, "" for name and password.
func (t *Transport) keep(login Login, scope, token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token == "" {
		t.login, t.basic = login, true
		delete(t.tokens, scope)
		return
	}
	if t.tokens == nil {
		t.tokens = map[string]string{}
	}
	t.tokens[scope] = token
}

var repositoryPath = regexp.MustCompile(`^/v2/(.+)/(?:manifests|blobs|tags|referrers)/`)

// scopeOf returns the scope of the distribution specification that req needs,
// "" for what belongs to no repository.
func scopeOf(req *http.Request) string {
	part := repositoryPath.FindStringSubmatch(req.URL.Path)
	if part == nil {
		return ""
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		return "repository:" + part[1] + ":pull"
	}
	return "repository:" + part[1] + ":pull,push"
}

func (t *Transport) fetchToken(ctx context.Context, login Login, params map[string]string, scope string) (string, error) {
	realm, err := url.Parse(params["realm"])
	if err != nil {
		return "", fmt.Errorf("the realm %.80q is not a URL", params["realm"])
	}
	if err := t.rules.realm.Run(meeting{t.scheme, t.host, realm}); err != nil {
		return "", fmt.Errorf("realm %.80q: %w", params["realm"], err)
	}
	query := url.Values{}
	if scope != "" {
		query.Set("scope", scope)
	}
	if s := params["service"]; s != "" {
		query.Set("service", s)
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	req, err := tokenRequest(ctx, login, realm, query)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: t.base, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		return t.rules.redirect.Run(meeting{t.scheme, t.host, req.URL})
	}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() // read-only: what matters was read
	if resp.StatusCode != http.StatusOK {
		return "", &StatusError{Status: resp.StatusCode, What: realm.Host}
	}
	var got struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 256<<10)).Decode(&got); err != nil {
		return "", err
	}
	if got.Token+got.AccessToken == "" {
		return "", errors.New("the answer holds no token")
	}
	return cmp.Or(got.Token, got.AccessToken), nil
}

// tokenRequest asks by GET with a password, by POST with an identity token.
func tokenRequest(ctx context.Context, login Login, realm *url.URL, query url.Values) (*http.Request, error) {
	if login.Token != "" {
		query.Set("grant_type", "refresh_token")
		query.Set("refresh_token", login.Token)
		query.Set("client_id", "caisson")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(query.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}
	realm.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err == nil && login.User != "" {
		req.SetBasicAuth(login.User, login.Password)
	}
	return req, err
}

// challenge is a way to log in that a registry offers.
type challenge struct {
	scheme string            // "basic" or "bearer"
	params map[string]string // by names in lower case
}

// maxChallenges caps how many an answer may have us try.
const maxChallenges = 8

// parseChallenges reads the values of WWW-Authenticate, each of which may hold several
// challenges (RFC 9110, 11.6.1), and returns those of schemes that are known here, bearer
// first. What is not in the form is passed over.
func parseChallenges(values []string) []challenge {
	var list []challenge
	for _, rest := range values {
		var params map[string]string // of the challenge that is being read
		begins := true               // at the start, and after a comma
		for rest != "" {
			word, after := cutToken(rest)
			blank := strings.TrimLeft(after, " \t")
			switch {
			case word == "": // blanks, a comma, or what belongs nowhere
				begins, rest = begins || rest[0] == ',', rest[1:]
				continue
			case strings.HasPrefix(blank, "="):
				var value string
				value, rest = cutValue(strings.TrimLeft(blank[1:], " \t"))
				if params != nil {
					params[strings.ToLower(word)] = value
				}
			case begins:
				c := challenge{strings.ToLower(word), map[string]string{}}
				params, rest = c.params, after
				if (c.scheme == "basic" || c.scheme == "bearer") && len(list) < maxChallenges {
					list = append(list, c)
				}
			default: // credentials of another scheme, in one word
				rest = after
			}
			begins = false
		}
	}
	slices.SortStableFunc(list, func(a, b challenge) int { return -cmp.Compare(a.scheme, b.scheme) })
	return list
}

// cutToken returns what of s comes before a delimiter.
func cutToken(s string) (token, rest string) {
	end := strings.IndexAny(s, " \t,=\"")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}

// cutValue cuts a parameter's value, as it is or quoted, from what comes after it.
func cutValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t,")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}
