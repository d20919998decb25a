// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/attack"
)

// theft is a row of the class credentials.
type theft struct {
	Name  string `yaml:"name"`
	Login string `yaml:"login"`
	Serve string `yaml:"serve"`
	Check string `yaml:"check"`
}

// field is a registry and the servers around it, and what they came to know.
type field struct {
	registry string // host:port
	tls      bool
	base     http.RoundTripper
	stolen   atomic.Bool // a server that is not the registry's has seen a secret
	loggedIn atomic.Bool // the registry, or its token server, has seen one
}

func (f *field) scheme() string {
	if f.tls {
		return "https"
	}
	return "http"
}

// secret reports whether a request carries credentials.
func secret(req *http.Request) bool {
	return req.Header.Get("Authorization") != "" || req.PostFormValue("refresh_token") != ""
}

// play starts the servers of a row.
func (th theft) play(t *testing.T) *field {
	t.Helper()
	f := &field{}
	start := func(h http.HandlerFunc, secure bool) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s
	}
	challenge := func(w http.ResponseWriter, header string) {
		w.Header().Set("WWW-Authenticate", header)
		w.WriteHeader(http.StatusUnauthorized)
	}
	place, trick, _ := strings.Cut(th.Serve, " ")
	var thief *httptest.Server
	thief = start(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case secret(req):
			f.stolen.Store(true)
			_ = json.NewEncoder(w).Encode(map[string]string{"token": "t"}) // the client reports what is missing
		case trick == "basic":
			challenge(w, "Basic")
		case trick == "token" && req.URL.Path != "/token":
			challenge(w, fmt.Sprintf("Bearer realm=%q", thief.URL+"/token"))
		default:
			w.WriteHeader(http.StatusOK)
		}
	}, false)
	tokens := start(func(w http.ResponseWriter, req *http.Request) {
		if status := map[string]int{"redirect 302": 302, "redirect 307": 307, "redirect 308": 308}[trick]; status != 0 {
			w.Header().Set("Location", strings.Replace(thief.URL, "127.0.0.1", "localhost", 1)+"/token")
			if status == http.StatusFound { // Go drops the header between hosts, not between ports
				w.Header().Set("Location", thief.URL+"/token")
			}
			w.WriteHeader(status)
			return
		}
		f.loggedIn.Store(secret(req))
		_ = json.NewEncoder(w).Encode(map[string]string{"token": "t"}) // the client reports what is missing
	}, false)
	f.tls = trick == "plain" || th.Serve == "downgrade"
	registry := start(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case place == "basic" && secret(req):
			f.loggedIn.Store(true)
			w.WriteHeader(http.StatusOK)
		case place == "basic":
			challenge(w, "Basic")
		case place == "redirect":
			f.loggedIn.Store(th.Check == "")
			http.Redirect(w, req, thief.URL+req.URL.Path, http.StatusTemporaryRedirect)
		case secret(req):
			w.WriteHeader(http.StatusOK)
		case trick == "plain":
			challenge(w, fmt.Sprintf("Bearer realm=%q", thief.URL))
		case trick == "ftp":
			challenge(w, fmt.Sprintf("Bearer realm=%q", strings.Replace(thief.URL, "http", "ftp", 1)))
		default:
			challenge(w, fmt.Sprintf("Bearer realm=%q", tokens.URL+"/token"))
		}
	}, f.tls)
	f.registry = strings.TrimPrefix(strings.TrimPrefix(registry.URL, "https://"), "http://")
	f.base = registry.Client().Transport
	return f
}

// run asks for a manifest by some rules and returns whether it came.
func (th theft) run(t *testing.T, f *field, by rules) bool {
	t.Helper()
	a := Over(f.base, f.scheme(), f.registry, nil, time.Minute)
	a.rules = by
	login := Login{User: "node", Password: "secret"}
	if th.Login == "identity" {
		login = Login{Token: "identity"}
	}
	a.logins = func(context.Context, string) (Login, error) { return login, nil }
	switch th.Serve {
	case "token ftp": // a transport for which the check is all there is between it and the server
		a.base = anyScheme{f.base, f}
	case "downgrade":
		a.login, a.basic = login, true
		a.base = anyScheme{f.base, f}
		a.RoundTrip(&http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Scheme: "http", Host: f.registry, Path: "/v2/x/manifests/y"}}) // what it answers does not matter
		return false
	}
	resp, err := (&http.Client{Transport: a}).Get(a.scheme + "://" + a.host + "/v2/metal-a/node/manifests/superhost")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// anyScheme counts what would leave this program by another scheme than the
// registry's.
type anyScheme struct {
	http.RoundTripper
	f *field
}

func (a anyScheme) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == a.f.scheme() {
		return a.RoundTripper.RoundTrip(req)
	}
	a.f.stolen.Store(secret(req))
	return nil, fmt.Errorf("unsupported protocol scheme %q", req.URL.Scheme)
}

// TestCredentialsGoToTheRegistryOnly runs the class, takes the check of each
// attack out and wants it to succeed then, and wants every check to have a row.
func TestCredentialsGoToTheRegistryOnly(t *testing.T) {
	named := map[string]bool{}
	for _, th := range attack.LoadClass[theft](t, "credentials") {
		named[th.Check] = true
		t.Run(th.Name, func(t *testing.T) {
			f := th.play(t)
			came := th.run(t, f, whole)
			if f.stolen.Load() {
				t.Error("credentials went to a stranger")
			}
			if th.Check == "" {
				if !came || !f.loggedIn.Load() {
					t.Errorf("came: %v, logged in: %v", came, f.loggedIn.Load())
				}
				return
			}
			f = th.play(t)
			th.run(t, f, rules{
				receiver: whole.receiver.Without(th.Check), realm: whole.realm.Without(th.Check), redirect: whole.redirect.Without(th.Check),
			})
			if !f.stolen.Load() {
				t.Errorf("nothing is stolen without the check %q", th.Check)
			}
		})
	}
	for _, l := range [][]string{whole.receiver.Names(), whole.realm.Names(), whole.redirect.Names()} {
		for _, name := range l {
			if !named[name] {
				t.Errorf("no attack names the check %q", name)
			}
		}
	}
}
