//! What all pages have around them: the navigation, who is signed in, and what was done on the page before.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::assets::{self, Assets};

/// A place in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
}

pub(super) const OVERVIEW: Section = Section {
    path: "/console",
    label: "Overview",
};

pub(super) const USAGE: Section = Section {
    path: "/console/usage",
    label: "Usage",
};

pub(super) const REQUESTS: Section = Section {
    path: "/console/requests",
    label: "Requests",
};

pub(super) const KEYS: Section = Section {
    path: "/console/keys",
    label: "Keys",
};

pub(super) const MONEY: Section = Section {
    path: "/console/money",
    label: "Money",
};

pub(super) const SWARMS: Section = Section {
    path: "/console/swarms",
    label: "Swarms",
};

/// What users find in the navigation.
const USERS: &[Section] = &[OVERVIEW, USAGE, REQUESTS, KEYS, MONEY, SWARMS];

pub(super) const PLATFORM: Section = Section {
    path: "/console/admin",
    label: "Platform",
};

pub(super) const MODELS: Section = Section {
    path: "/console/admin/models",
    label: "Models",
};

pub(super) const PEOPLE: Section = Section {
    path: "/console/admin/users",
    label: "Users",
};

pub(super) const PLUGINS: Section = Section {
    path: "/console/admin/plugins",
    label: "Plugins",
};

pub(super) const LOCKOUTS: Section = Section {
    path: "/console/admin/lockouts",
    label: "Lockouts",
};

pub(super) const WEBHOOKS: Section = Section {
    path: "/console/admin/webhooks",
    label: "Webhooks",
};

pub(super) const AUDIT: Section = Section {
    path: "/console/admin/audit",
    label: "Audit",
};

/// What administrators find there, too.
const ADMINISTRATORS: &[Section] = &[PLATFORM, MODELS, PEOPLE, PLUGINS, LOCKOUTS, WEBHOOKS, AUDIT];

/// What is around a page.
pub(super) struct Frame {
    pub(super) title: String,
    section: Option<Section>,
    pub(super) viewer: Option<Viewer>,
    pub(super) flash: Option<Flash>,
}

/// Who looks at it.
pub(super) struct Viewer {
    pub(super) user_id: String,
    pub(super) plan: String,
    pub(super) is_admin: bool,
    pub(super) form_token: String,
}

/// What was done on the page before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flash {
    pub(super) is_good: bool,
    pub(super) text: String,
}

/// A link of the navigation.
pub(super) struct Link {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    pub(super) is_current: bool,
}

impl Frame {
    /// Around a page of a section, for who is signed in.
    pub(super) fn new(
        title: impl Into<String>,
        section: Section,
        viewer: Viewer,
        flash: Option<Flash>,
    ) -> Self {
        Self {
            title: title.into(),
            section: Some(section),
            viewer: Some(viewer),
            flash,
        }
    }

    /// Around a page for anybody.
    pub(super) fn bare(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section: None,
            viewer: None,
            flash: None,
        }
    }

    /// What the hidden field `form_token` of every form holds.
    pub(super) fn form_token(&self) -> &str {
        let viewer = self.viewer.as_ref();
        viewer.map_or("", |viewer| &viewer.form_token)
    }

    pub(super) fn assets(&self) -> &'static Assets {
        assets::all()
    }

    pub(super) fn links(&self) -> Vec<Link> {
        self.links_of(USERS)
    }

    /// None for who is no administrator.
    pub(super) fn admin_links(&self) -> Vec<Link> {
        match &self.viewer {
            Some(viewer) if viewer.is_admin => self.links_of(ADMINISTRATORS),
            _ => Vec::new(),
        }
    }

    fn links_of(&self, sections: &[Section]) -> Vec<Link> {
        let link = |section: &Section| Link {
            path: section.path,
            label: section.label,
            is_current: self.section == Some(*section),
        };
        sections.iter().map(link).collect()
    }
}

impl Flash {
    /// Says what was done.
    pub(super) fn good(text: impl Into<String>) -> Self {
        Self {
            is_good: true,
            text: text.into(),
        }
    }

    /// Says why nothing was done.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self {
            is_good: false,
            text: text.into(),
        }
    }
}

/// What an error's page is called.
pub(super) fn title_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "Something went wrong",
        _ => "That did not work",
    }
}
