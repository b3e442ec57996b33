// Package fsdp is a thin client of the fsdpctl training service: connections with TLS and tokens, calls that
// are repeated where that is safe, streams that are taken up again where they broke, and errors with their
// details. The messages and the services themselves are in fsdpctl/client/go/fsdpv1.
package fsdp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Options say how to reach a coordinator, and who one is there. The zero value is a coordinator on this machine.
type Options struct {
	// Server is "host:port", "[v6]:port" or "unix:/path"; empty: 127.0.0.1:7070.
	Server string
	// TLS asks for it without a file; the system's authorities are trusted then.
	TLS bool
	// TLSCA is a PEM file of the authorities to trust.
	TLSCA string
	// TLSCertificate and TLSKey are PEM files of one's own identity; both or none.
	TLSCertificate string
	TLSKey         string
	// TLSServerName is the name in the coordinator's certificate, where it is not the one that is dialled.
	TLSServerName string
	// TokenFile holds a bearer token; it is read at each call, so that a rotated token is used from then on.
	TokenFile string
	// AllowPlaintextToken lets a token go over an unencrypted connection to another machine.
	AllowPlaintextToken bool
	// CallTimeout is that of one call, repeats included; 0: 10 s.
	CallTimeout time.Duration
	// RetryWindow is how long a call is repeated while the coordinator is away; 0: 4 s.
	RetryWindow time.Duration
	// ReconnectWindow is how long a stream tries to get its coordinator back; 0: 60 s.
	ReconnectWindow time.Duration
	// OnReconnect is told of each broken connection; may be nil.
	OnReconnect func(error)
}

// OptionsFromEnvironment reads FSDPCTL_SERVER, FSDPCTL_TLS_CA ("system": the system's authorities), _TLS_CERTIFICATE,
// _TLS_KEY, _TLS_SERVER_NAME, FSDPCTL_TOKEN_FILE and FSDPCTL_ALLOW_PLAINTEXT_TOKEN, as fsdpctl does.
func OptionsFromEnvironment() Options {
	allowed := os.Getenv("FSDPCTL_ALLOW_PLAINTEXT_TOKEN")
	options := Options{
		Server:         os.Getenv("FSDPCTL_SERVER"),
		TLSCA:          os.Getenv("FSDPCTL_TLS_CA"),
		TLSCertificate: os.Getenv("FSDPCTL_TLS_CERTIFICATE"),
		TLSKey:         os.Getenv("FSDPCTL_TLS_KEY"),
		TLSServerName:  os.Getenv("FSDPCTL_TLS_SERVER_NAME"),
		TokenFile:      os.Getenv("FSDPCTL_TOKEN_FILE"),

		AllowPlaintextToken: allowed == "true" || allowed == "1",
	}
	if options.TLSCA == "system" {
		options.TLS, options.TLSCA = true, ""
	}
	return options
}

func (o Options) usesTLS() bool { return o.TLS || o.TLSCA != "" || o.TLSCertificate != "" }

func (o Options) isLocal() bool {
	if strings.HasPrefix(o.Server, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(o.Server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// withDefaults fills what was left out and refuses what contradicts itself.
func (o Options) withDefaults() (Options, error) {
	if o.Server == "" {
		o.Server = "127.0.0.1:7070"
	}
	for _, value := range []struct {
		given    *time.Duration
		fallback time.Duration
	}{{&o.CallTimeout, 10 * time.Second}, {&o.RetryWindow, 4 * time.Second}, {&o.ReconnectWindow, time.Minute}} {
		if *value.given < 0 {
			return o, errors.New("fsdp: CallTimeout, RetryWindow and ReconnectWindow must not be negative")
		}
		if *value.given == 0 {
			*value.given = value.fallback
		}
	}
	if (o.TLSCertificate == "") != (o.TLSKey == "") {
		return o, errors.New("fsdp: TLSCertificate and TLSKey go together: give both or none")
	}
	if o.TLSServerName != "" && !o.usesTLS() {
		return o, errors.New("fsdp: TLSServerName without TLS: set TLS or TLSCA")
	}
	if o.TokenFile != "" && !o.usesTLS() && !o.isLocal() && !o.AllowPlaintextToken {
		return o, fmt.Errorf("fsdp: the token would go to %s unencrypted: set TLS or TLSCA, or "+
			"AllowPlaintextToken in a network that you trust", o.Server)
	}
	return o, nil
}

func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.TLSServerName}
	if o.TLSCA != "" {
		pem, err := os.ReadFile(o.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("fsdp: TLSCA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("fsdp: TLSCA: %s holds no certificate", o.TLSCA)
		}
	}
	if o.TLSCertificate != "" {
		pair, err := tls.LoadX509KeyPair(o.TLSCertificate, o.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("fsdp: TLSCertificate and TLSKey: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// token is empty without a file.
func (o Options) token() (string, error) {
	if o.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return "", fmt.Errorf("fsdp: TokenFile: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("fsdp: TokenFile: %s holds no token", o.TokenFile)
	}
	return token, nil
}
