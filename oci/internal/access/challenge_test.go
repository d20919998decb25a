// SPDX-License-Identifier: Apache-2.0

package access

import (
	"reflect"
	"slices"
	"testing"
)

func TestParseChallenges(t *testing.T) {
	params := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for p := range slices.Chunk(pairs, 2) {
			m[p[0]] = p[1]
		}
		return m
	}
	bearer := challenge{"bearer", params("realm", "https://a/t", "service", "reg", "scope", "repository:x:pull,push")}
	basic := challenge{"basic", params("realm", "reg")}
	const bearerText = `Bearer realm="https://a/t",service="reg",scope="repository:x:pull,push"`
	for _, row := range []struct {
		values []string
		want   []challenge
	}{
		{nil, nil},
		{[]string{bearerText}, []challenge{bearer}},
		{[]string{`Basic realm="reg", ` + bearerText}, []challenge{bearer, basic}},
		{[]string{bearerText + `, Basic realm="reg"`}, []challenge{bearer, basic}},
		{[]string{`Basic realm="reg"`, bearerText}, []challenge{bearer, basic}},
		{[]string{`BASIC Realm = reg , ` + bearerText}, []challenge{bearer, basic}},
		{[]string{`Basic, ,Bearer realm=x`}, []challenge{{"bearer", params("realm", "x")}, {"basic", params()}}},
		{[]string{`Negotiate, Basic realm="reg"`}, []challenge{basic}},
		{[]string{`Negotiate YII=basic==, Basic realm="reg"`, `NTLM Basic`}, []challenge{basic}},
		{[]string{`Digest realm="other", qop="auth, Basic", nonce=1, Basic realm="reg"`}, []challenge{basic}},
		{[]string{`Basic realm="a\"b, Bearer realm=\\"`}, []challenge{{"basic", params("realm", `a"b, Bearer realm=\`)}}},
		{[]string{`Basic realm="open`}, []challenge{{"basic", params("realm", "open")}}},
		{[]string{`="x", realm=y`, `"`, `=`}, nil},
	} {
		if got := parseChallenges(row.values); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%q: %+v, want %+v", row.values, got, row.want)
		}
	}
}

// FuzzParseChallenges wants few challenges, of known schemes only, bearer first.
func FuzzParseChallenges(f *testing.F) {
	f.Add(`Bearer realm="https://auth.example.org/token",service="registry",scope="repository:a/b:pull,push"`)
	f.Add(`Basic realm="x", Bearer realm="a\"b"`)
	f.Add(`Negotiate abc==, Digest x=1,,Basic`)
	f.Fuzz(func(t *testing.T, line string) {
		list := parseChallenges([]string{line, line})
		basic := false
		for _, c := range list {
			basic = basic || c.scheme == "basic"
			if c.params == nil || c.scheme != "basic" && (c.scheme != "bearer" || basic) {
				t.Errorf("%q: %+v", line, list)
			}
		}
		if len(list) > maxChallenges {
			t.Errorf("%q: %d challenges", line, len(list))
		}
	})
}
