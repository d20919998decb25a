// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// Login holds the credentials for one registry. The zero value is anonymous.
type Login struct {
	User, Password string
	Token          string // identity token: used as a refresh token
}

// Logins finds the credentials for host[:port], the zero Login where there are none.
type Logins func(ctx context.Context, host string) (Login, error)

// logins returns where the credentials for a registry come from. An AuthFile is
// read at once, so that a wrong one is known before anything is asked.
func (o Options) logins(host string) (Logins, error) {
	if o.AuthFile == "" && o.Logins != nil {
		return o.Logins, nil
	}
	l, err := o.Login(host)
	return func(context.Context, string) (Login, error) { return l, nil }, err
}

// Login returns the credentials for host[:port] in the options' AuthFile; a host
// that the file does not name gets none. Helper programs are never run.
func (o Options) Login(host string) (Login, error) {
	if o.AuthFile == "" {
		return Login{}, nil
	}
	data, err := ownfiles.ReadSecret(o.AuthFile)
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
