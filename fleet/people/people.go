// SPDX-License-Identifier: Apache-2.0

// Package people finds out who asks a fleet's service, and in which role: by the [Tokens] of a file, or
// by an OpenID provider that says who a person is, and in which groups: OpenID Connect Core 1.0, the
// authorization code flow with PKCE (RFC 7636).
//
//	url, flow, err := provider.Begin(ctx, "/nodes")  // the browser goes there, and keeps the flow
//	person, to, err := provider.Finish(ctx, flow, query) // and comes back with a code
//
// Between the two it remembers nothing: a flow is sealed into what the browser keeps, so strangers
// cannot fill a list. [Sessions] remember who has logged in. What a role may do is decided by who is
// asked. Only fleet/server, fleet/service and cmd/caisson import it.
package people

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/caisson-os/caisson/internal/plain"
)

// Options name a provider, and this service as it knows it.
type Options struct {
	Issuer   string // URL, as in the provider's own description
	Client   string // id of this service there
	Secret   string // of the client; "" is a public one, which PKCE protects alone
	Callback string // URL at which people come back
	Claim    string // what lists a person's groups
}

// Person is somebody whom the provider knows.
type Person struct {
	Subject string // never given to another one by that provider
	Name    string // for people
	Groups  []string
	Told    bool // the provider said which, if only that there are none
}

// patience is how long a provider may take for an answer, and flowFor a person to log in there.
const (
	patience = 10 * time.Second
	flowFor  = 10 * time.Minute
)

// Provider is one that people log in at.
type Provider struct {
	o    Options
	http *http.Client
	seal *sealer
	now  func() time.Time

	mu     sync.Mutex
	known  *oidc.Provider // nil until it has answered once
	failed error          // why it has not, a moment ago
	tried  time.Time
}

// again is the least time between two questions to a provider that did not answer: those who wait
// behind the first get its error.
const again = 5 * time.Second

// New returns a provider. It is asked at the first login: a service starts without it.
func New(o Options) *Provider {
	asks := &http.Client{Timeout: patience, Transport: bounded{http.DefaultTransport.(*http.Transport).Clone()}}
	return &Provider{o: o, http: asks, seal: newSealer(), now: time.Now}
}

// Host is the provider's name for people.
func (p *Provider) Host() string {
	u, err := url.Parse(p.o.Issuer)
	if err != nil {
		return p.o.Issuer
	}
	return u.Host
}

// flow is kept by the browser while it is at the provider.
type flow struct {
	State, Nonce, Verifier string
	To                     string // where it wanted to go
	Until                  time.Time
}

// Begin returns where a browser logs in, and what it keeps until it comes back.
func (p *Provider) Begin(ctx context.Context, to string) (at, kept string, err error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	c, _, err := p.config(ctx)
	if err != nil {
		return "", "", err
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to, Until: p.now().Add(flowFor)}
	text, _ := json.Marshal(f) // texts, and a time of these years
	return c.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), p.seal.seal(text), nil
}

// ErrFlow is returned where a browser did not begin here what it ends, or long ago.
var ErrFlow = errors.New("this login did not begin in this browser within ten minutes")

// Finish returns who has come back, and where they wanted to go.
func (p *Provider) Finish(ctx context.Context, kept string, came url.Values) (who Person, to string, err error) {
	var f flow
	text, ok := p.seal.open(kept)
	if !ok || json.Unmarshal(text, &f) != nil || p.now().After(f.Until) ||
		subtle.ConstantTimeCompare([]byte(f.State), []byte(came.Get("state"))) != 1 {
		return who, "", ErrFlow
	}
	if said := came.Get("error"); said != "" {
		return who, "", fmt.Errorf("%s says: %s", p.Host(), plain.Line(said+" "+came.Get("error_description")))
	}
	ctx, cancel := p.within(ctx)
	defer cancel()
	c, known, err := p.config(ctx)
	if err != nil {
		return who, "", err
	}
	token, err := c.Exchange(ctx, came.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return who, "", fmt.Errorf("%s takes no code of this login: %w", p.Host(), err)
	}
	raw, _ := token.Extra("id_token").(string) // "" is not a token
	id, err := known.VerifierContext(ctx, &oidc.Config{ClientID: p.o.Client, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return who, "", fmt.Errorf("identity from %s: %w", p.Host(), err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return who, "", ErrFlow
	}
	who, err = p.person(ctx, known, id, oauth2.StaticTokenSource(token))
	return who, f.To, err
}

// person reads who an identity is of. Many providers have name and groups only where they are asked.
func (p *Provider) person(ctx context.Context, known *oidc.Provider, id *oidc.IDToken, by oauth2.TokenSource) (who Person, err error) {
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return who, fmt.Errorf("identity from %s: %w", p.Host(), err)
	}
	if known.UserInfoEndpoint() != "" {
		more, err := known.UserInfo(ctx, by)
		if err != nil {
			return who, fmt.Errorf("ask %s about a person: %w", p.Host(), err)
		}
		if more.Subject != id.Subject {
			return who, fmt.Errorf("%s answers about somebody else", p.Host())
		}
		if err := more.Claims(&claims); err != nil {
			return who, fmt.Errorf("groups from %s: %w", p.Host(), err)
		}
	}
	if err := checkSubject(id.Subject); err != nil {
		return who, fmt.Errorf("identity from %s: %w", p.Host(), err)
	}
	who = Person{Subject: id.Subject, Name: id.Subject, Groups: texts(claims[p.o.Claim])}
	_, who.Told = claims[p.o.Claim]
	if name, ok := claims["preferred_username"].(string); ok && name != "" {
		who.Name = name
	}
	who.Name = plain.Line(who.Name[:min(len(who.Name), 100)])
	return who, nil
}

// checkSubject wants a subject as OpenID Connect Core 1.0, 2 has it, which a row of a log holds as it is.
func checkSubject(text string) error {
	if text == "" || len(text) > 255 || strings.Trim(text, " ") != text || plain.Line(text) != text {
		return fmt.Errorf("the subject %.300q is not 1 to 255 characters that print", text)
	}
	return nil
}

// texts reads a claim that is one text, or a list.
func texts(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		return plain.Pick(c, func(one any) (string, bool) { text, ok := one.(string); return text, ok })
	}
	return nil
}

// within bounds what asks the provider.
func (p *Provider) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(oidc.ClientContext(ctx, p.http), patience)
}

// config returns how the provider is talked to; it is asked for its description once.
func (p *Provider) config(ctx context.Context) (oauth2.Config, *oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil && p.failed != nil && p.now().Sub(p.tried) < again {
		return oauth2.Config{}, nil, p.failed
	}
	if p.known == nil {
		known, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.o.Issuer)
		if other := (*oidc.IssuerMismatchError)(nil); errors.As(err, &other) {
			err = fmt.Errorf("it calls itself %q: give --oidc-issuer so, byte by byte, not %q", other.Discovered, other.Provided)
		}
		if p.tried = p.now(); err != nil {
			p.failed = fmt.Errorf("ask %s for its description: %w", p.Host(), err)
			return oauth2.Config{}, nil, p.failed
		}
		p.known = known
	}
	scopes := []string{oidc.ScopeOpenID, "profile"}
	var said struct {
		Scopes []string `json:"scopes_supported"`
	}
	_ = p.known.Claims(&said) // what is described otherwise lists none
	if c := p.o.Claim; slices.Contains(said.Scopes, c) || len(said.Scopes) == 0 && c != "roles" && c != "sub" {
		scopes = append(scopes, c)
	}
	return oauth2.Config{ClientID: p.o.Client, ClientSecret: p.o.Secret, Endpoint: p.known.Endpoint(),
		RedirectURL: p.o.Callback, Scopes: scopes}, p.known, nil
}

// mostAnswer is more than any answer of a provider has, in bytes.
const mostAnswer = 1 << 20

// bounded ends answers that are too long: go-oidc reads each into memory.
type bounded struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &answer{resp.Body, mostAnswer}
	}
	return resp, err
}

type answer struct {
	io.ReadCloser
	left int
}

func (a *answer) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, fmt.Errorf("it answers %d bytes or more", mostAnswer)
	}
	n, err := a.ReadCloser.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

// sealer keeps what others hold for this process: they can neither read nor change it. Its key ends
// with the process.
type sealer struct{ aead cipher.AEAD }

func newSealer() *sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key)                          // never fails
	block, _ := aes.NewCipher(key)                 // a key may have 32 bytes
	aead, _ := cipher.NewGCMWithRandomNonce(block) // AES has blocks of 16 bytes
	return &sealer{aead}
}

func (s *sealer) seal(text []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// mostSealed is more than any flow has, in bytes.
const mostSealed = 4 << 10

func (s *sealer) open(kept string) ([]byte, bool) {
	if len(kept) > mostSealed {
		return nil, false
	}
	data, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		return nil, false
	}
	text, err := s.aead.Open(nil, nil, data, nil)
	return text, err == nil
}
