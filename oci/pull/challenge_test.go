// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestChallenges asks registries that offer several ways to log in and take one of them.
func TestChallenges(t *testing.T) {
	const password = "Basic bm9kZTpzZWNyZXQ="
	for _, row := range []struct {
		name  string
		offer []string // TOKENS is the token server
		takes string   // as the credentials begin
		deny  bool     // the token server gives none
		asked string   // what the registry and the token server saw, in order
		error string
	}{
		{"both in one header", []string{`Basic realm="reg", Bearer realm="TOKENS"`}, "Bearer", false, "none token Bearer", ""},
		{"both in two", []string{`Basic realm="reg"`, `Bearer realm="TOKENS"`}, "Bearer", false, "none token Bearer", ""},
		{"no token", []string{`Bearer realm="TOKENS", Basic realm="reg"`}, "Basic", true, "none token Basic", ""},
		{"token refused", []string{`Bearer realm="TOKENS"`, `Basic realm="reg"`}, "Basic", false, "none token Bearer Basic", ""},
		{"realm not a URL", []string{`Bearer realm="nowhere", Basic realm="reg"`}, "Basic", false, "none Basic", ""},
		{"unknown beside", []string{`Negotiate abc==, Digest realm="reg", nonce="1", Basic realm="reg"`}, "Basic", false, "none Basic", ""},
		{"unknown alone", []string{`Negotiate`}, "Basic", false, "none", "unknown challenge"},
		{"none taken", []string{`Basic realm="reg", Bearer realm="TOKENS"`}, "nothing", false, "none token Bearer Basic", "401"},
		{"no token, password refused", []string{`Basic realm="reg", Bearer realm="TOKENS"`}, "nothing", true, "none token Basic", `token for "repository:metal-a/node:pull"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked []string
			tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked = append(asked, "token")
				if row.deny || req.Header.Get("Authorization") != password {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]string{"token": "t"}) // the client reports what is missing
			}))
			defer tokens.Close()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				credentials := req.Header.Get("Authorization")
				scheme, _, _ := strings.Cut(credentials, " ")
				if scheme == "" {
					scheme = "none"
				}
				asked = append(asked, scheme)
				if scheme == row.takes && (credentials == password || credentials == "Bearer t") {
					good(w, req)
					return
				}
				for _, one := range row.offer {
					w.Header().Add("WWW-Authenticate", strings.ReplaceAll(one, "TOKENS", tokens.URL))
				}
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer server.Close()
			_, err := ask(t, server.URL, Options{AuthFile: authFile(t, server.URL, basicEntry)})
			var status *StatusError
			switch {
			case row.error == "" && err != nil:
				t.Error(err)
			case row.error != "" && (err == nil || !strings.Contains(err.Error(), row.error) || !errors.As(err, &status)):
				t.Errorf("%v, want %q", err, row.error)
			}
			if got := strings.Join(asked, " "); got != row.asked {
				t.Errorf("asked %q, want %q", got, row.asked)
			}
		})
	}
}
