// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Login is what a registry knows its caller by.
type Login struct {
	User, Password string
	Token          string // identity token: used as a refresh token
}

// Login finds host in the options' AuthFile. A host that the file does not name
// gets none. Helper programs are never run.
func (o Options) Login(host string) (Login, error) {
	if o.AuthFile == "" {
		return Login{}, nil
	}
	data, err := readPrivate(o.AuthFile)
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
		return Login{}, fmt.Errorf("credentials: %s: %w", o.AuthFile, err)
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
			return Login{}, fmt.Errorf("credentials: %s: the auth of %s is not base64 of user:password", o.AuthFile, host)
		}
		l.User, l.Password = user, password
	}
	return l, nil
}

// authorizer answers a registry's challenge: basic, or a bearer token from the
// realm that the challenge names.
type authorizer struct {
	client *http.Client
	login  Login
	prefix string
	tls    bool

	mu     sync.Mutex
	basic  bool
	tokens map[string]string // by repository
}

func (a *authorizer) authorize(req *http.Request, repo string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch token := a.tokens[repo]; {
	case token != "":
		req.Header.Set("Authorization", "Bearer "+token)
	case a.basic:
		req.SetBasicAuth(a.login.User, a.login.Password)
	}
}

func (a *authorizer) challenge(ctx context.Context, resp *http.Response, repo string) error {
	for _, line := range resp.Header.Values("WWW-Authenticate") {
		scheme, params := parseChallenge(line)
		switch scheme {
		case "basic":
			if a.login.User == "" {
				return &StatusError{Status: resp.StatusCode, What: repo, Text: "no credentials for " + resp.Request.URL.Host}
			}
			a.mu.Lock()
			a.basic = true
			a.mu.Unlock()
			return nil
		case "bearer":
			token, err := a.fetchToken(ctx, params, repo)
			if err != nil {
				return fmt.Errorf("token for %s: %w", repo, err)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.tokens == nil {
				a.tokens = map[string]string{}
			}
			a.tokens[repo] = token
			return nil
		}
	}
	return &StatusError{Status: resp.StatusCode, What: repo, Text: "unknown challenge"}
}

func (a *authorizer) fetchToken(ctx context.Context, params map[string]string, repo string) (string, error) {
	realm, err := url.Parse(params["realm"])
	if err != nil || realm.Host == "" || realm.Scheme != "https" && realm.Scheme != "http" {
		return "", fmt.Errorf("the realm %.80q is no URL", params["realm"])
	}
	if a.tls && realm.Scheme != "https" {
		return "", fmt.Errorf("the realm %.80q is not https: credentials stay here", params["realm"])
	}
	query := url.Values{"scope": {"repository:" + a.prefix + repo + ":pull"}}
	if s := params["service"]; s != "" {
		query.Set("service", s)
	}
	req, err := a.tokenRequest(ctx, realm, query)
	if err != nil {
		return "", err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
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
	if got.Token == "" {
		got.Token = got.AccessToken
	}
	if got.Token == "" {
		return "", errors.New("the answer holds none")
	}
	return got.Token, nil
}

// tokenRequest asks by GET with a password, by POST with an identity token.
func (a *authorizer) tokenRequest(ctx context.Context, realm *url.URL, query url.Values) (*http.Request, error) {
	if a.login.Token != "" {
		query.Set("grant_type", "refresh_token")
		query.Set("refresh_token", a.login.Token)
		query.Set("client_id", "caisson")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(query.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}
	realm.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err == nil && a.login.User != "" {
		req.SetBasicAuth(a.login.User, a.login.Password)
	}
	return req, err
}

// parseChallenge reads `Bearer realm="https://…",service="…",scope="…"`.
func parseChallenge(line string) (scheme string, params map[string]string) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	params = map[string]string{}
	for rest != "" {
		key, after, ok := strings.Cut(strings.TrimLeft(rest, " ,"), "=")
		if !ok {
			break
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			value, rest, _ = strings.Cut(after[1:], `"`)
		} else {
			value, rest, _ = strings.Cut(after, ",")
		}
		params[strings.ToLower(strings.TrimSpace(key))] = value
	}
	return strings.ToLower(scheme), params
}
